"""Run by a test in a process of its own, with its own AIRFLOW_HOME: ``SOURCE TARGET FOLDER``. Fails if a rule is broken."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafka_replication.config import Replication
from kafka_replication.orchestration.spark_hook import HookSubmission
from kafka_replication.runtime import failpoints
from kafka_replication.spark.launcher import Launcher
from tests.contract.launcher.conformance import Subject, check_launcher
from tests.support.scenario import Cluster, Scenario


@contextmanager
def killing(at: str) -> Iterator[None]:
    """The workers inherit it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(failpoints.VARIABLE, f"W@{at}")
        yield


def main(source: str, target: str, folder: str) -> None:
    scene = Scenario(Cluster(source), Cluster(target), Path(folder))
    replication: Replication = scene.replication()

    def launcher() -> Launcher:
        return Launcher(lambda: HookSubmission(replication))

    check_launcher(Subject(launcher, killing), scene)


if __name__ == "__main__":
    main(*sys.argv[1:4])
    print("conforms")
