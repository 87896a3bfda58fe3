"""The launcher of the tests keeps what Spark's keeps; and the suite sees what a broken launcher does not keep."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import ClassVar

import pytest

from kafka_replication.model.errors import Unreachable
from kafka_replication.runtime import failpoints
from kafka_replication.spark.jobs import Job, JobEnd, RangeResult
from kafka_replication.spark.launcher import Deliver
from kafka_replication.verification.auditing import Audit, Audited
from tests.contract.launcher.conformance import HEALTHY, Subject, check_audits, check_launcher
from tests.support.jobs import InProcess, WorkerDied, copies
from tests.support.scenario import Scenario
from tests.support.scenes import clusters, scene

__all__ = ["clusters", "scene"]


@contextmanager
def killing(at: str) -> Iterator[None]:
    """There is no process to be killed: what would end it is an exception."""

    def die() -> None:
        raise WorkerDied(at)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(failpoints.VARIABLE, f"W@{at}")
        patch.setattr(failpoints, "die", die)
        failpoints.forget()
        yield


def test_the_launcher_of_the_tests_conforms(scene: Scenario) -> None:
    check_launcher(Subject(InProcess, killing), scene)


def test_the_launcher_of_the_tests_conforms_in_audits(scene: Scenario) -> None:
    check_audits(Subject(InProcess, killing), scene)


class LosesAnAudit(InProcess):
    def submit(self, job: Job, deliver: Deliver) -> JobEnd:
        return super().submit(
            replace(job, audits=[task for task in job.audits if not task.where.endswith("-0")]), deliver
        )


class CutsOffTheOtherAudits(InProcess):
    def submit(self, job: Job, deliver: Deliver) -> JobEnd:
        with suppress(WorkerDied):
            return super().submit(replace(job, audits=job.audits[::-1]), deliver)
        return JobEnd(error="Spark gave up", retriable=False)

    def died(self, task: Audit, death: WorkerDied) -> Audited:
        raise death


@pytest.mark.slow  # of the suite itself
@pytest.mark.parametrize("broken", [LosesAnAudit, CutsOffTheOtherAudits])
def test_the_suite_fails_on_a_launcher_that_loses_audits(scene: Scenario, broken: type[InProcess]) -> None:
    with pytest.raises(AssertionError):
        check_audits(Subject(broken, killing, patience=0.5), scene)


class Changed(InProcess):
    """Each result is changed on its way, to any number of results."""

    def submit(self, job: Job, deliver: Deliver) -> JobEnd:
        return super().submit(job, lambda results: deliver([each for one in results for each in self.changed(one)]))

    def changed(self, result: RangeResult) -> list[RangeResult]:
        return [result]


class LosesAResult(Changed):
    def changed(self, result: RangeResult) -> list[RangeResult]:
        return [] if result.key.source.partition == HEALTHY[0] else [result]


class RepeatsAResult(Changed):
    def changed(self, result: RangeResult) -> list[RangeResult]:
        return [result] * 2


class GivesUpWhenARangeFails(Changed):
    def changed(self, result: RangeResult) -> list[RangeResult]:
        if result.copied and result.copied.error:
            raise Unreachable(result.copied.error, result.copied.remedy)
        return [result]


class CutsOffTheOthersWhenAWorkerDies(InProcess):
    def submit(self, job: Job, deliver: Deliver) -> JobEnd:
        super().submit(job, deliver)
        return JobEnd(error="Spark gave up") if copies(job) else JobEnd()


class CallsADeathFinal(Changed):
    def changed(self, result: RangeResult) -> list[RangeResult]:
        return [replace(result, copied=replace(result.copied, retriable=False) if result.copied else None)]


class ReadsNothingBack(Changed):
    def changed(self, result: RangeResult) -> list[RangeResult]:
        return [replace(result, read_back=None)]


class DeliversInAnotherThread(InProcess):
    def submit(self, job: Job, deliver: Deliver) -> JobEnd:
        results: list[RangeResult] = []
        end = super().submit(job, results.extend)
        with ThreadPoolExecutor(1) as pool:
            pool.submit(deliver, results).result()
        return end


class TakesOneJobOnly(InProcess):
    def submit(self, job: Job, deliver: Deliver) -> JobEnd:
        if self.jobs:
            raise Unreachable("Spark has ended", "")
        return super().submit(job, deliver)


class LeavesAProcess(InProcess):
    left: ClassVar[list[subprocess.Popen[bytes]]] = []

    def submit(self, job: Job, deliver: Deliver) -> JobEnd:
        self.left.append(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))
        return super().submit(job, deliver)


@pytest.fixture
def _tidy() -> Iterator[None]:
    yield
    for process in LeavesAProcess.left:
        process.kill()
        process.communicate()


@pytest.mark.slow  # of the suite itself
@pytest.mark.usefixtures("_tidy")
@pytest.mark.parametrize(
    "broken",
    [
        LosesAResult,
        RepeatsAResult,
        GivesUpWhenARangeFails,
        CutsOffTheOthersWhenAWorkerDies,
        CallsADeathFinal,
        ReadsNothingBack,
        DeliversInAnotherThread,
        TakesOneJobOnly,
        LeavesAProcess,
    ],
)
def test_the_suite_fails_on_a_broken_launcher(scene: Scenario, broken: type[InProcess]) -> None:
    with pytest.raises(AssertionError):
        check_launcher(Subject(broken, killing, patience=0.5), scene)
