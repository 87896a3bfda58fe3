"""Calls spark-submit from Airflow: the Spark provider's hook as a `Submission`."""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk.exceptions import AirflowException

from kafka_replication.config import Replication
from kafka_replication.model.errors import BadInput
from kafka_replication.orchestration.connections import AirflowConnections
from kafka_replication.runtime.stopping import end_group
from kafka_replication.spark import local, submit
from kafka_replication.spark.reach import ALWAYS_SAID
from kafka_replication.spark.workspace import Workspace

STOP_SECONDS = 3  # Airflow kills a task 5 s after it asked it to end
_SILENT: Any = logging.getLogger(f"{__name__}.command")
_SILENT.disabled = True


class ReplicationSparkSubmitHook(SparkSubmitHook):
    """The provider's hook, which reads the connection as the command line does: a missing connection is an error, and
    a local master allows a failed Spark task a second attempt.
    """

    _variables: Mapping[str, str] = {}  # of the environment in which it submits

    def _resolve_connection(self) -> dict[str, Any]:
        spark = AirflowConnections().spark(self._conn_id)
        resolved: dict[str, Any] = super()._resolve_connection()
        return {**resolved, "master": spark.master}

    @property
    def master(self) -> str:
        return str(self._connection["master"])

    def submit_and_wait(self, environment: dict[str, str], hear: Callable[[str], object]) -> str:
        """Submit in a new process group, wait, and return the end of spark-submit. Raises BadInput.

        Only Popen gets the environment; it is never ``--conf`` text.
        """
        self._hear, self._variables = hear, environment
        environment["PATH"] = f"{environment['SPARK_HOME']}/bin{os.pathsep}{environment.get('PATH', os.defpath)}"
        try:
            self.submit(str(submit.script()), env=environment, start_new_session=True)
        except FileNotFoundError as e:
            raise BadInput(
                f"{e.filename} is not on the PATH", "install it, or correct spark-binary in the Spark connection"
            ) from e
        except AirflowException as e:
            process: subprocess.Popen[str] | None = self._submit_sp
            return f"exit code {process.returncode}" if process is not None and process.returncode else str(e)
        return "exit code 0"

    def _process_spark_submit_log(self, itr: Iterator[Any]) -> None:
        """Pass each line to ``hear``. The lines of every start are not logged."""

        def passed_on() -> Iterator[Any]:
            for line in itr:
                self._hear(str(line))
                if not ALWAYS_SAID.search(str(line)):
                    yield line

        super()._process_spark_submit_log(passed_on())

    def _build_spark_submit_command(self, application: str) -> list[str]:
        """The command, without the provider's log of it: 900 characters before all important lines. In local mode it
        has no scripts where it can do without.
        """
        spoken, self._log = self.log, _SILENT
        try:
            command = list(super()._build_spark_submit_command(application))
        finally:
            self._log = spoken
        quick = local.is_local(self.master) and command[0] == "spark-submit" and self._variables
        return local.without_scripts(command, self._variables) if quick else command

    def stop(self) -> None:
        """End spark-submit and all processes that it started on this machine. The driver's JVM first gets a few seconds
        to end its executors.
        """
        process: subprocess.Popen[str] | None = self._submit_sp
        if process is not None:
            end_group(process, STOP_SECONDS)


class HookSubmission:
    """Calls spark-submit for one replication, in a thread, because the hook returns when spark-submit has ended."""

    def __init__(self, replication: Replication) -> None:
        self._replication = replication
        self._hook: ReplicationSparkSubmitHook | None = None
        self._thread: Future[str] | None = None

    @property
    def master(self) -> str:
        return AirflowConnections().spark(self._replication.spark.connection).master

    def start(self, here: Workspace, name: str, hear: Callable[[str], object]) -> None:
        """Resolve the connection in this thread, then submit in another one. Raises BadInput, ConnectionMissing."""
        hook = self._hook = self.hook(here, name)
        pool = ThreadPoolExecutor(1, thread_name_prefix="spark-submit")
        self._thread = pool.submit(hook.submit_and_wait, submit.environment(hook.master, here), hear)
        pool.shutdown(wait=False)

    def wait(self, seconds: float) -> str | None:
        """The end of spark-submit; None if it still runs after ``seconds``. Raises BadInput without the program."""
        assert self._thread is not None
        with suppress(TimeoutError):
            return self._thread.result(seconds)
        return None

    def stop(self) -> None:
        """End spark-submit and the processes that it started on this machine."""
        if self._hook is not None:
            self._hook.stop()

    def log_place(self) -> str:
        """The place of Spark's log: the hook logs each line."""
        return "above"

    def kill(self) -> None:
        """Stop, and let the provider end a driver that runs on another machine."""
        if self._hook is not None:
            self._hook.stop()
            self._hook.on_kill()

    def hook(self, here: Workspace, name: str) -> ReplicationSparkSubmitHook:
        """Puts the package into the folder. Raises BadInput, ConnectionMissing."""
        spark = self._replication.spark
        master = AirflowConnections().spark(spark.connection).master
        package = submit.package_for(master, here)
        try:
            return ReplicationSparkSubmitHook(
                conf=submit.conf_for(master, spark.conf),
                conn_id=spark.connection,
                py_files=submit.py_files(package, spark.conf),
                application_args=[str(here.socket)],
                deploy_mode="client",
                name=name,
            )
        except ValueError as e:
            raise BadInput(f"connection {spark.connection!r}: {e}", "correct its extra, see docs/connections.md") from e
