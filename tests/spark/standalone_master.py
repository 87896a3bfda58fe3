"""A real Spark cluster on this machine, from PySpark's own jars: a standalone master and its workers."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kafka_replication.connections import SparkConnection
from kafka_replication.runtime.stopping import end_group
from kafka_replication.spark.submit import spark_home
from stack.ports import LOOPBACK, free_ports
from tests.support.waiting import wait_until

PACKAGE = "org.apache.spark.deploy"
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # a start takes half the CPU time


@dataclass(frozen=True)
class Master:
    """A standalone master: how to reach it, and its process."""

    connection: SparkConnection
    page: int
    process: subprocess.Popen[bytes]

    def applications(self) -> list[str]:
        """The ids of those that it has taken and that have not ended."""
        page = _page(self.page)
        return [each["id"] for each in json.loads(page)["activeapps"]] if page else []

    def end(self, application: str) -> None:
        """As a person does it on the master's page."""
        form = urllib.parse.urlencode({"id": application, "terminate": "true"}).encode()
        urllib.request.urlopen(f"http://{LOOPBACK}:{self.page}/app/kill/", form, timeout=60).close()


@contextlib.contextmanager
def standalone_master(folder: Path, workers: int = 2, secret: str | None = None) -> Iterator[Master]:
    """A master with so many workers of one core each. With a ``secret`` it takes no application that does not have it.
    The connection has it.
    """
    port, page = free_ports(2)
    login = {} if secret is None else {"spark.authenticate": "true", "spark.authenticate.secret": secret}
    with contextlib.ExitStack() as stack:

        def start(name: str, *arguments: str) -> subprocess.Popen[bytes]:
            home = folder / name
            home.mkdir(parents=True)
            log = stack.enter_context((home / "log").open("wb"))
            process = subprocess.Popen(
                [str(spark_home() / "bin" / "spark-class"), *arguments],
                env={
                    **os.environ,
                    "SPARK_HOME": str(spark_home()),
                    "PYSPARK_PYTHON": sys.executable,
                    "SPARK_DAEMON_JAVA_OPTS": " ".join(
                        [QUICK, *(f"-D{name}={value}" for name, value in login.items())]
                    ),
                },
                cwd=home,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            stack.callback(process.wait)
            stack.callback(end_group, process, 10)
            return process

        address = ("--host", LOOPBACK)
        master = start("master", f"{PACKAGE}.master.Master", *address, "--port", str(port), "--webui-port", str(page))
        for number in range(workers):
            own = ("--cores", "1", "--memory", "1g", "--webui-port", "0", "--work-dir", str(folder / f"work{number}"))
            start(f"worker{number}", f"{PACKAGE}.worker.Worker", *address, *own, f"spark://{LOOPBACK}:{port}")
        wait_until(lambda: _page(page).count("ALIVE") > workers)  # the master itself is alive, too
        settings = {"driver.host": LOOPBACK, "executor.memory": "512m", "executor.extraJavaOptions": QUICK}
        conf = {f"spark.{name}": value for name, value in settings.items()} | login
        yield Master(SparkConnection(f"spark://{LOOPBACK}:{port}", conf), page, master)


def _page(port: int) -> str:
    try:
        with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/json/", timeout=5) as page:
            return str(page.read().decode())
    except OSError:
        return ""
