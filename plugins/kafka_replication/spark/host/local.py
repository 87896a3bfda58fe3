"""Settings for a fast start of Spark in local mode, in which one small JVM is driver and executor at once."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from kafka_replication.spark.host.archive import Archive

OPTIONS = "spark.driver.extraJavaOptions"
DAEMON = "kafka_replication.spark.preloaded_daemon"
# The JVM does little but start. The first compiler alone costs half as much CPU time.
QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xms64m")
# Java prints its objections to an archive on stdout; a run without an archive is no fault.
SILENT = ("-Xlog:cds*=off", "-Xlog:class+path=off")
_JAVA_VARIABLES = ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
_LAUNCHER_VARIABLE = "SPARK_LAUNCHER_OPTS"
_SWITCH = re.compile(r"(^|[\s\"'])-X(X:|share|log|int|batch)")


def is_local(master: str) -> bool:
    """True if driver and workers are on this machine, in one JVM. ``local-cluster[...]`` is a cluster."""
    return master == "local" or master.startswith("local[")


def archive(spark_home: Path) -> Archive | None:
    return Archive.of(spark_home, QUICK)


def conf(spark_home: Path, own: Mapping[str, str]) -> dict[str, str]:
    """Settings that save time, except those that the user has set (``own``), which are never changed or extended."""
    settings = {"spark.python.daemon.module": DAEMON}
    if not has_own_options(spark_home, own):
        class_data = archive(spark_home)
        file = class_data.sound() if class_data else None
        shared = (f"-XX:SharedArchiveFile={file}", "-Xshare:auto", *SILENT) if file else ()
        settings[OPTIONS] = " ".join([*QUICK, *shared])
    return settings


def variables() -> dict[str, str]:
    """Environment variables that save time. They are for the JVM that builds spark-submit's command, too."""
    if _LAUNCHER_VARIABLE in os.environ or _switches(_JAVA_VARIABLES[1:]):
        return {}
    return {_LAUNCHER_VARIABLE: " ".join(QUICK)}


def has_own_options(spark_home: Path, own: Mapping[str, str]) -> bool:
    """True if the user chose options for the driver's JVM: in a setting, in Spark's own files, or in the environment.

    Java does not start if it is told to use two garbage collectors.
    """
    if any(name.startswith("spark.driver.") and name.endswith("JavaOptions") for name in own):
        return True
    folder = Path(os.environ.get("SPARK_CONF_DIR") or spark_home / "conf")
    if "spark.driver." in (text := _text(folder / "spark-defaults.conf")) and "JavaOptions" in text:
        return True
    return bool(_text(folder / "java-opts") or _text(folder / "spark-env.sh")) or _switches(_JAVA_VARIABLES)


def _switches(names: tuple[str, ...]) -> bool:
    return any(_SWITCH.search(os.environ.get(name, "")) for name in names)


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""
