"""Two runs write what is verified of one partition, without transactions: neither takes anything away from the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafka_replication.ledger.entries import Entry, Verified
from kafka_replication.ledger.port import Ledger, TransactionPort
from kafka_replication.model.offsets import Coverage, OffsetRange, PartitionKey
from kafka_replication.runs.bookkeeping import Bookkeeper
from kafka_replication.runs.run import Request
from kafka_replication.runs.steps import prepare
from kafka_replication.spark import worker
from tests.support.actions import put
from tests.support.scenario import Scenario, numbered


class Sleeping:
    """The ledger of a run that sleeps between reading the ledger and writing what is verified."""

    def __init__(self, ledger: Ledger, meanwhile: Callable[[], None]) -> None:
        self._ledger, self._meanwhile = ledger, [meanwhile]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)

    def write(self, transaction: TransactionPort, key: PartitionKey, entry: Entry) -> None:
        while isinstance(entry, Verified) and self._meanwhile:
            self._meanwhile.pop()()
        self._ledger.write(transaction, key, entry)


def test_what_another_run_wrote_meanwhile_stays(scene: Scenario) -> None:
    scene.settings |= {"delivery": "at_least_once", "copy": {"chunk_records": 10}}
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(40))
    job, run = scene.copy_job(), scene.bare_run("sleeping")
    key = scene.key()
    first = Coverage.of([OffsetRange(0, 10)])
    other = Verified(generation=1, coverage=first, level="digest", run_id="other", time="t", duplicates=7)
    run.clusters.target.__dict__["ledger"] = Sleeping(run.clusters.ledger, lambda: put(scene, other))
    books = Bookkeeper(run, prepare(run, Request()))
    with books.open(job.tasks):
        books.enter([worker.replicate(job, task) for task in job.tasks])
    written = scene.bare_run().view().verified[key]
    assert (str(written.coverage), written.duplicates) == ("[0, 40)", 7), written
