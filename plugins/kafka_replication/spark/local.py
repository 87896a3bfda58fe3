"""Settings for a fast start of Spark in local mode, in which one small JVM is driver and executor at once.

The class-data archive of local mode: Java maps Spark's classes from it instead of reading and checking 280 jars.

`training` makes it. That takes several seconds, so no run does it. A run uses the archive if there is a sound one.
Without one it is only slower.

Java checks that an archive belongs to it and to its jars. It does not notice all damage: version 17 crashes on an
archive that was cut off. An archive's name therefore ends with a digest of its content, which every run checks.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path

import xxhash

FOLDER = "kafka-replication"
UNFINISHED = "unfinished-"
OLDEST_JAVA = 17
# Java's options split at these, and its list of archives at the colon.
_UNFIT = frozenset(" \t\n\"'\\:")


@dataclass(frozen=True, slots=True)
class Java:
    """The Java that spark-submit starts: its program, and a text that differs for every build of it."""

    program: Path
    build: str
    version: int

    @classmethod
    def installed(cls) -> Java | None:
        """The Java that spark-submit would start; None if there is none, or if it does not state its version."""
        home = os.environ.get("JAVA_HOME")
        named = f"{home}/bin/java" if home else shutil.which("java")
        if named is None:
            return None
        program = Path(named).resolve()
        try:
            release = (program.parents[1] / "release").read_text(errors="replace")
            machines = (program.parents[1] / "lib" / "server").glob("libjvm.*")
            (machine,) = [path for path in machines if path.suffix in (".so", ".dylib")]
            version = re.search(r'^JAVA_VERSION=\s*"?(\d+)', release, re.MULTILINE)  # the 17 of "17.0.15"
            return cls(program, f"{release}\n{_stamp(machine)}", int(version[1])) if version else None
        except (OSError, ValueError):
            return None


def _stamp(path: Path) -> str:
    status = path.stat()
    return f"{path} {status.st_size} {status.st_mtime_ns}"


@dataclass(frozen=True, slots=True)
class Archive:
    """The place of the archive for one Java, one Spark and one set of Java options."""

    folder: Path
    key: str
    java: Java = field(repr=False)

    @classmethod
    def of(cls, spark_home: Path, options: Sequence[str]) -> Archive | None:
        """The archive; None if there can be none: Java is not known to have archives, or there is no cache folder."""
        java, folder = Java.installed(), cache_folder()
        if java is None or java.version < OLDEST_JAVA or folder is None or _UNFIT & set(str(folder)):
            return None
        try:
            jars = _stamp(spark_home / "jars")
        except OSError:
            return None
        parts = [str(java.program), java.build, jars, os.environ.get("SPARK_CONF_DIR", ""), *options]
        return cls(folder, xxhash.xxh3_64_hexdigest("\n".join(parts).encode()), java)

    def sound(self) -> Path | None:
        """The archive's file; None unless it belongs to this user and is undamaged. Never raises."""
        try:
            if not _is_private(self.folder):
                return None
            return next((path for path in self._files() if self._is_sound(path)), None)
        except OSError:
            return None

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob(f"spark-{self.key}-*.jsa"))

    def _is_sound(self, path: Path) -> bool:
        try:
            with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode) or not _is_own(status):
                    return False
                return path == self._named(file)
        except OSError:
            return False

    def _named(self, content: BufferedReader) -> Path:
        """The name of an archive with this content."""
        digest = hashlib.file_digest(content, xxhash.xxh3_128).hexdigest()
        return self.folder / f"spark-{self.key}-{digest}.jsa"

    @contextmanager
    def making(self) -> Iterator[Path | None]:
        """Yields the name of a file for Java to write, then makes that file the archive.

        None if there is a sound one. One process at a time makes it; others wait. Raises OSError if the folder cannot
        be used.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_private(self.folder):
            raise PermissionError(f"{self.folder} is not a folder that only this user may write")
        with (self.folder / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self.sound() is not None:
                yield None
                return
            for abandoned in self.folder.glob(f"{UNFINISHED}*"):
                shutil.rmtree(abandoned, ignore_errors=True)
            with tempfile.TemporaryDirectory(prefix=UNFINISHED, dir=self.folder) as unfinished:
                made = Path(unfinished) / "classes.jsa"
                yield made
                if made.is_file():
                    with made.open("rb") as file:
                        named = self._named(file)
                    made.chmod(0o600)
                    for damaged in self._files():
                        damaged.unlink()
                    made.rename(named)


def cache_folder() -> Path | None:
    """This product's folder in the user's cache (``XDG_CACHE_HOME``, else ``~/.cache``)."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    try:
        return (Path(named) if Path(named).is_absolute() else Path.home() / ".cache") / FOLDER
    except RuntimeError:  # no home
        return None


def _is_private(folder: Path) -> bool:
    """True if it is a real folder of this user, where only the user can put files. Java runs an archive's content."""
    try:
        status = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and _is_own(status)


def _is_own(status: os.stat_result) -> bool:
    return status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


OPTIONS = "spark.driver.extraJavaOptions"
DAEMON = "kafka_replication.spark.preloaded"
_SUBMIT = "org.apache.spark.deploy.SparkSubmit"
# The JVM does little but start. The first compiler alone costs half as much CPU time.
QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xms64m")
# Java prints its objections to an archive on stdout; a run without an archive is no fault.
SILENT = ("-Xlog:cds*=off", "-Xlog:class+path=off")
_JAVA_VARIABLES = ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
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


def has_own_options(spark_home: Path, own: Mapping[str, str]) -> bool:
    """True if the user chose options for the driver's JVM: in a setting, in Spark's own files, or in the environment.

    Java does not start if it is told to use two garbage collectors.
    """
    if any(name.startswith("spark.driver.") and name.endswith("JavaOptions") for name in own):
        return True
    folder = Path(os.environ.get("SPARK_CONF_DIR") or spark_home / "conf")
    if "spark.driver." in (text := _text(folder / "spark-defaults.conf")) and "JavaOptions" in text:
        return True
    if _text(folder / "java-opts") or _text(folder / "spark-env.sh"):
        return True
    return any(_SWITCH.search(os.environ.get(name, "")) for name in _JAVA_VARIABLES)


# The scripts of Spark read these, and no launcher does.
_FOR_SCRIPTS = ("SPARK_LAUNCHER_OPTS", "SPARK_PREPEND_CLASSES", "SPARK_TESTING", "SPARK_SQL_TESTING")


def without_scripts(command: Sequence[str], variables: Mapping[str, str]) -> list[str]:
    """The command of Java to which the scripts of spark-submit come, for a call of spark-submit with these environment
    ``variables``. Spark's launcher prints it in 0.06 s; its scripts take 0.4 s to find the launcher, and give it 280
    jars. The same ``command`` if they have more to do, or if the launcher refuses it: spark-submit says why.
    """
    home = Path(variables["SPARK_HOME"])
    launchers, java = [*(home / "jars").glob("spark-launcher_*.jar")], Java.installed()
    settings = Path(variables.get("SPARK_CONF_DIR") or home / "conf") / "spark-env.sh"
    if len(launchers) != 1 or java is None or settings.exists() or any(name in variables for name in _FOR_SCRIPTS):
        return list(command)
    scala = launchers[0].name.removeprefix("spark-launcher_").partition("-")[0]
    launcher = "-cp", str(launchers[0]), "org.apache.spark.launcher.Main"
    asked = [str(java.program), *QUICK, *launcher, _SUBMIT, *command[1:]]
    environment = {**variables, "SPARK_SCALA_VERSION": scala}
    printed = subprocess.run(asked, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    found = printed.stdout.decode(errors="surrogateescape").partition("\0\n")[2].split("\0")[:-1]
    return found if _SUBMIT in found and not printed.returncode else list(command)


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""
