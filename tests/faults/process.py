"""A whole run in a process of its own, to be killed: ``python -m tests.faults.process JOB_FILE``.

Copies several ranges at a time in threads, as Spark does in processes, or with real Spark where the job asks for it. Progress goes to
stdout; the last line is ``RESULT`` and what came of it as JSON.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from kafka_replication.config import Replication
from kafka_replication.connections import SparkConnection
from kafka_replication.copying.engine import CopyResult
from kafka_replication.documents import as_json
from kafka_replication.model.errors import Fenced, ReplicationError
from kafka_replication.reporting.run import RunReport
from kafka_replication.runs import cutover, failback, failover, groups, leasing, runner, steps
from kafka_replication.runs.audit import audit
from kafka_replication.runs.cutover import Wishes
from kafka_replication.runs.leasing import EVERYTHING, leased, live_scope
from kafka_replication.runs.reset import reset_topic
from kafka_replication.runs.run import Request, Run, open_run
from kafka_replication.runtime import deadline
from kafka_replication.spark.jobs import Job, JobEnd
from kafka_replication.spark.launcher import Deliver, Launcher, terminal_launcher
from kafka_replication.spark.worker import Auditor, replicate
from kafka_replication.store import open_store
from kafka_replication.store.watermark_store import WatermarkStore
from kafka_replication.verification.verify import VerifyResult
from tests.faults import mutations
from tests.support import whole_runs

RESULT = "RESULT "
HANDS = 3
WISHES = Wishes(by="ann", reason="a fault", quiet=0.5, sample=2)


@dataclass(frozen=True)
class Clients:
    """`Connections` from a job file."""

    settings: Mapping[str, Any]

    def kafka(self, connection_id: str) -> dict[str, Any]:
        return dict(self.settings[connection_id])

    def apprise(self, connection_id: str) -> tuple[str, ...]:
        return ()

    def service(self, connection_id: str, conn_type: str) -> dict[str, Any]:
        return dict(self.settings[connection_id])

    def spark(self, connection_id: str) -> SparkConnection:
        raise AssertionError("the launcher is made here")


@dataclass
class Threads(Launcher):
    """The workers' real functions, a few at a time. Keeps the errors that a new run cannot heal, by their own word."""

    final: list[str] = field(default_factory=list)

    def __enter__(self) -> Self:
        return self

    def submit(self, job: Job, deliver: Deliver) -> JobEnd:
        with ThreadPoolExecutor(HANDS) as pool:
            for done in as_completed([pool.submit(replicate, job, task) for task in job.tasks]):
                result = done.result()
                copied = result.copied
                if copied is not None and copied.error and not (copied.retriable or copied.fenced):
                    self.final.append(copied.error)
                deliver([result])
        auditor = Auditor(job)
        for task in job.audits:
            deliver([auditor.work(task)])
        return JobEnd()

    def __exit__(self, *_: object) -> None: ...


def move_clock(seconds: float) -> None:
    """This process believes that it is so much later. Timers do not change, nor do the clocks of C libraries (SQLite's, librdkafka's)."""
    if seconds:
        real = time.time
        time.time = lambda: real() + seconds


def reset(replication: Replication, clients: Clients, store: WatermarkStore) -> dict[str, Any]:
    """``kafka-replication reset FILE`` of the topic instead of a run."""
    with leased(open_run(replication, clients, store, runner.new_run_id()), EVERYTHING) as run:
        reset_topic(run, replication.topics.named[0])
    return {"outcome": "reset", "errors": [], "final": []}


def audited(replication: Replication, clients: Clients, store: WatermarkStore) -> dict[str, Any]:
    """``kafka-replication audit FILE`` instead of a run: what it counts of each partition."""
    report = audit(open_run(replication, clients, store, runner.new_run_id()))
    counted = {
        each.key.source.partition: {"lost": each.lost_in_delivery, "doubled": each.duplicates}
        for each in report.partitions
    }
    return {"outcome": "audited", "errors": [], "final": [], "counted": counted}


def given_up(run: Run, what: str) -> dict[str, Any]:
    """``kafka-replication failover FILE --apply``, or ``--undo``, instead of a run."""
    document = failover.undo(run) if what == "undo" else failover.failover(run, WISHES, Threads())
    errors = [f"{row.source}: {row.error} {row.not_verified} not verified" for row in document.partitions if row.error]
    return {"outcome": "failed" if document.failed else document.state, "errors": errors, "final": []}


def turned(run: Run, what: str, clients: Clients) -> dict[str, Any]:
    """``kafka-replication cutover FILE --apply`` or ``failback FILE BACK --apply`` instead of a run."""
    if what == "cutover":
        document = cutover.cutover(run, WISHES, Threads())
    else:
        file, topic = run.replication, run.replication.topics.named[0]
        copy = file.target_name(topic)
        settings = {
            **file.model_dump(by_alias=True, exclude_unset=True),
            "name": f"{file.name}-back",
            "source": {"connection": "target"},
            "target": {"connection": "source"},
            "topics": {"include": [copy], "rename": {f"^{re.escape(copy)}$": topic}},
        }
        back = open_run(Replication.model_validate(settings), clients, run.store, run.run_id)
        document = failback.failback(run, back, WISHES, Threads())
    errors = [f"{step.step}: {step.what}" for step in document.steps if step.state == "blocked"]
    done = {"cutover": "cut over", "failback": "gone back"}[what]
    return {"outcome": "failed" if document.failed else done, "errors": errors, "final": []}


def moved(replication: Replication, clients: Clients, store: WatermarkStore) -> dict[str, Any]:
    """``kafka-replication groups apply FILE`` instead of a run: how many records its group reads again at most, by partition."""
    document = groups.move(open_run(replication, clients, store, runner.new_run_id()), apply=True)
    rows = [row for group in document.groups for row in group.partitions]
    errors = [f"{row.source}: {row.state} {row.why}" for row in rows if row.why]
    errors += [f"{group.group}: {group.state} {group.why}" for group in document.groups if group.why]
    again = {row.source.partition: row.again for row in rows}
    return {"outcome": "failed" if errors or not rows else "moved", "errors": errors, "final": [], "again": again}


def as_tasks(
    replication: Replication, clients: Clients, store: WatermarkStore, spark: Launcher, tries: int
) -> RunReport:
    """As a DAG does it: the plan is made once, and the task that copies is tried again while that may help."""
    run = open_run(replication, clients, store, "airflow-" + runner.new_run_id())
    with leased(run, live_scope(run, Request().topics), "run") as leased_run:
        plan, done = steps.prepare(leased_run, Request()), steps.NotDone()
        for number in range(tries):
            try:
                plan = steps.resumed(leased_run, plan) if number else plan
                found = steps.replicate(leased_run, plan, spark)
            except ReplicationError as error:
                print(f"try {number + 1}: {error}", flush=True)
                if not error.retriable:
                    break
                continue
            done = found.not_done
            failed: list[CopyResult | VerifyResult] = [*found.not_copied, *found.not_verified]
            print(f"try {number + 1}: {[result.error for result in failed]}", flush=True)
            if not any(result.retriable for result in failed):
                break
        return steps.report(leased_run, plan, done)


def main(settings: dict[str, Any]) -> dict[str, Any]:
    mutations.apply(settings.get("mutation"))
    move_clock(settings.get("clock", 0))
    deadline.ATTEMPTS = settings.get("attempts", 4)  # so that a run that cannot work ends soon
    leasing.DURATION = 3.0  # so that what follows a run that stands still need not wait long
    clients = Clients(settings["clients"])
    threads = Threads()
    launcher: Launcher = (
        threads
        if "spark" not in settings
        else terminal_launcher(lambda: SparkConnection(settings["master"], {}), settings["spark"])
    )
    replication = Replication.model_validate(settings["config"])
    store = open_store(settings["store_url"])
    if settings.get("reset"):
        return reset(replication, clients, store)
    if what := settings.get("turn"):
        run = open_run(replication, clients, store, runner.new_run_id())
        return turned(run, what, clients) if what in ("cutover", "failback") else given_up(run, what)
    if settings.get("groups"):
        return moved(replication, clients, store)
    if settings.get("audit"):
        return audited(replication, clients, store)
    try:
        report = (
            as_tasks(replication, clients, store, launcher, settings["tries"])
            if "tries" in settings
            else whole_runs.run(replication, clients, store, launcher, Request())
        )
    except ReplicationError as error:
        return {
            "outcome": "failed",
            "errors": [f"{type(error).__name__}: {error}"],
            "final": [] if error.retriable or isinstance(error, Fenced) else [str(error)],
        }
    lines = as_json(report)
    errors = [str(each["error"]) for each in lines["ranges"] if each["error"]]
    return {"outcome": lines["outcome"], "errors": errors, "final": threads.final} | {
        name: lines[name] for name in ("ranges", "notes")
    }


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stdout)
    print(RESULT + json.dumps(main(json.loads(Path(sys.argv[1]).read_text()))), flush=True)
