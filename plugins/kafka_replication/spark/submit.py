"""Start Spark with spark-submit: what every call has, and the command line's way to call it.

The file that takes what Spark prints, on the command line.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO

from kafka_replication.connections import SparkConnection
from kafka_replication.model.errors import BadInput
from kafka_replication.runtime import extras
from kafka_replication.runtime.stopping import end_group
from kafka_replication.spark import local
from kafka_replication.spark.workspace import PACKAGE, Workspace, link_code, without_secrets, write_package

log = logging.getLogger(__name__)

READ_SECONDS = 2.0  # for the rest of the log of a spark-submit that has ended


class OutputFile:
    """A file in the user's temporary folder, readable only by this user. It is made when Spark first starts."""

    def __init__(self, replication: str) -> None:
        self._replication = replication
        self.path: Path | None = None

    def open(self) -> IO[bytes]:
        """Open it for adding. The caller closes it. Raises BadInput if it cannot be made."""
        try:
            if self.path is None:
                name = re.sub(r"[^A-Za-z0-9._-]", "_", self._replication)
                number, path = tempfile.mkstemp(prefix=f"kafka-replication-{name}-", suffix=".log")
                self.path = Path(path)
                return os.fdopen(number, "ab")
            return self.path.open("ab")
        except OSError as e:
            raise BadInput(
                f"no file for Spark's log can be made in {tempfile.gettempdir()}: {e.strerror}",
                "set TMPDIR to a folder that is yours; or use --verbose, which needs no file",
            ) from e

    def remove(self) -> None:
        if self.path is not None:
            with suppress(OSError):
                self.path.unlink(missing_ok=True)
            self.path = None


SCRIPTS = "KAFKA_REPLICATION_SPARK_JOBS"
SCRIPT = "replicate_ranges.py"
STOP_SECONDS = 15.0


def script() -> Path:
    """The entry point: in the folder that the environment names, else in ``spark_jobs/`` beside the package, else in
    the installed package. Raises BadInput if the named folder has no entry point.
    """
    named, beside = os.environ.get(SCRIPTS), PACKAGE.parents[1] / "spark_jobs" / SCRIPT
    if named is None:
        return beside if beside.is_file() else PACKAGE / "spark" / "start.py"
    if not (Path(named) / SCRIPT).is_file():
        raise BadInput(f"there is no {Path(named) / SCRIPT}", f"set {SCRIPTS} to the folder that holds the Spark job")
    return Path(named) / SCRIPT


def spark_home() -> Path:
    """PySpark's folder, without importing PySpark, which takes a second. Raises BadInput."""
    home = _installed("pyspark")
    if not (home / "bin" / "spark-submit").is_file():
        raise BadInput(f"{home} has no spark-submit: it is pyspark-client, not pyspark", extras.install("pyspark"))
    return home


def _installed(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise BadInput(f"{package} is not installed", extras.install(package))
    return Path(spec.origin).parent


# Of Spark's Python workers. The threads of clients pass records on to each other; with an arena of memory for each
# thread, which is glibc's way, what one thread frees stays unused.
WORKER_ENVIRONMENT = {"MALLOC_ARENA_MAX": "2"}


def conf_for(master: str, own: Mapping[str, str]) -> dict[str, str]:
    """The settings of a submission. ``own`` are the user's, which always win.

    In local mode Spark listens only on this machine, and starts as fast as it can.
    """
    conf = {
        "spark.ui.showConsoleProgress": "false",
        "spark.submit.deployMode": "client",
        "spark.log.level": "WARN",  # Spark writes 20 INFO lines about each range
        **{f"spark.executorEnv.{name}": value for name, value in WORKER_ENVIRONMENT.items()},
    }
    if master.startswith("local"):
        conf |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.ui.enabled": "false"}
    if local.is_local(master):
        conf |= local.conf(spark_home(), own)
    return {**conf, **own}


def package_for(master: str, here: Workspace) -> Path | None:
    """Put this package in a place where the driver and its workers find it. Returns the value for ``--py-files``, or
    None.

    A cluster gets a zip. In local mode all processes import from the folders of this installation, whose modules are
    compiled.
    """
    if local.is_local(master):
        link_code(here.links, spark_home(), _installed("py4j"))
        return None
    write_package(here.package)
    return here.package


PY_FILES = "spark.submit.pyFiles"


def py_files(package: Path | None, conf: Mapping[str, str]) -> str | None:
    """The value of ``--py-files``: this package, and the files of the user's setting, which it would replace."""
    return ",".join(filter(None, [str(package) if package else "", conf.get(PY_FILES, "")])) or None


def environment(master: str, here: Workspace) -> dict[str, str]:
    """The environment of spark-submit, and so of all processes of Spark on this machine."""
    variables = {
        **(WORKER_ENVIRONMENT if local.is_local(master) else {}),
        **without_secrets(),
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),  # on a cluster: the workers' Python
        "PYSPARK_DRIVER_PYTHON": os.environ.get("PYSPARK_DRIVER_PYTHON", sys.executable),
        "SPARK_HOME": str(spark_home()),
    }
    if local.is_local(master):
        path = os.pathsep.join([str(here.links), *filter(None, [os.environ.get("PYTHONPATH")])])
        variables["PYTHONPATH"] = path
        variables["PYTHONHASHSEED"] = "0"  # as the script spark-submit sets it
    return variables


class TerminalSubmission:
    """Calls spark-submit as in a terminal. Spark's log goes to ``output``, or to this process's stderr."""

    def __init__(self, spark: SparkConnection, conf: Mapping[str, str], output: OutputFile | None = None) -> None:
        self._spark, self._conf, self._output = spark, conf, output
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None

    @property
    def master(self) -> str:
        return self._spark.master

    def start(self, here: Workspace, name: str, hear: Callable[[str], object]) -> None:
        """Start in a new process group. Raises BadInput if the file for the log cannot be made."""
        with ExitStack() as stack:
            log_to = sys.stderr.buffer if self._output is None else stack.enter_context(self._output.open())
            command, variables = self.command(here, name), environment(self._spark.master, here)
            self._process = subprocess.Popen(
                local.without_scripts(command, variables) if local.is_local(self._spark.master) else command,
                env=variables,
                start_new_session=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            assert self._process.stdout is not None
            arguments = (self._process.stdout, log_to, stack.pop_all(), hear)
            self._reader = threading.Thread(target=_pass_on, args=arguments, daemon=True, name="spark-log")
            self._reader.start()

    def wait(self, seconds: float) -> str | None:
        assert self._process is not None and self._reader is not None
        with suppress(subprocess.TimeoutExpired):
            code = self._process.wait(seconds)
            self._reader.join(READ_SECONDS)
            return f"exit code {code}"
        return None

    def stop(self) -> None:
        if self._process is not None:
            end_group(self._process, STOP_SECONDS)

    def log_place(self) -> str:
        return "above" if self._output is None or self._output.path is None else str(self._output.path)

    def command(self, here: Workspace, name: str) -> list[str]:
        """The command contains no secrets; they go through the socket. Puts the package into the folder."""
        command = [str(spark_home() / "bin" / "spark-submit"), "--master", self._spark.master, "--name", name]
        conf = conf_for(self._spark.master, {**self._spark.conf, **self._conf})
        for key, value in conf.items():
            command += ["--conf", f"{key}={value}"]
        if files := py_files(package_for(self._spark.master, here), conf):
            command += ["--py-files", files]
        return [*command, str(script()), str(here.socket)]


def _pass_on(lines: IO[bytes], to: IO[bytes], whose: ExitStack, hear: Callable[[str], object]) -> None:
    """Pass on each line of Spark's log as it comes. ``hear`` gets also a line that a full disk does not take."""
    with whose, lines:
        for line in lines:
            hear(line.decode(errors="replace"))
            with suppress(OSError, ValueError):
                to.write(line)
                to.flush()
