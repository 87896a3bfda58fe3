"""One broker as both sides of a replication, with a user of its own for each side."""

from __future__ import annotations

import uuid
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from kafka_replication.config import Replication
from kafka_replication.connections import SparkConnection
from kafka_replication.ledger.entries import POSITIONS, RECEIPTS
from kafka_replication.model.errors import ReplicationError
from kafka_replication.model.trouble import Trouble
from kafka_replication.reporting.run import RunReport
from kafka_replication.runs import checking
from kafka_replication.runs.run import Request, open_run
from kafka_replication.runtime.deadline import Deadline
from kafka_replication.spark.launcher import Launcher
from kafka_replication.store import open_store
from kafka_replication.store.watermark_store import WatermarkStore
from tests.support import whole_runs
from tests.support.jobs import InProcess
from tests.support.secured import Acl, SecuredCluster
from tests.support.waiting import wait_until

NAME, TOPIC, COPY = "orders-dr", "orders", "copy.orders"


@dataclass
class Pair:
    """The replication of one topic between two users of one broker."""

    cluster: SecuredCluster
    users: dict[str, str]
    settings: dict[str, dict[str, Any]]
    database: str = "store"

    @cached_property
    def store(self) -> WatermarkStore:
        return open_store(self.store_url)

    def new_store(self) -> None:
        self.database = uuid.uuid4().hex
        self.__dict__.pop("store", None)

    def kafka(self, connection_id: str) -> dict[str, Any]:
        return self.settings[connection_id]

    def service(self, connection_id: str, conn_type: str) -> dict[str, Any]:
        raise AssertionError("both sides are Kafka")

    def spark(self, connection_id: str) -> SparkConnection:
        return SparkConnection("local[2,4]", {})

    def apprise(self, connection_id: str) -> tuple[str, ...]:
        return ()

    name = NAME

    @property
    def connections(self) -> Pair:
        return self

    @property
    def folder(self) -> Path:
        return self.cluster.cluster.folder

    @property
    def store_url(self) -> str:
        return f"sqlite:///{self.folder}/{self.database}.db"

    def document(self) -> dict[str, Any]:
        return {
            "name": NAME,
            "source": {"connection": "source"},
            "target": {"connection": "target"},
            "topics": {"include": [TOPIC], "rename": "copy.{topic}"},
            "copy": {"transaction_timeout": 30},
        }

    def replication(self, **more: Any) -> Replication:
        return Replication.model_validate(self.document() | more)

    def check(self, **more: Any) -> list[Trouble]:
        """The errors that a check finds."""
        return [finding for finding in self.findings(**more) if finding.severity == "error"]

    def findings(self, **more: Any) -> list[Trouble]:
        """All that a check finds, with a connection of its own, as a command has it."""
        return checking.check(
            open_run(self.replication(**more), self, self.store, "check", Deadline.after(60))
        ).findings

    def run(self, launcher: Launcher | None = None, **more: Any) -> str:
        """Empty if the run did all of it, else what it said."""
        try:
            report = self.report(launcher, **more)
        except ReplicationError as error:
            return str(error)
        return "" if report.outcome != "failed" else report.table()

    def report(self, launcher: Launcher | None = None, **more: Any) -> RunReport:
        return whole_runs.run(self.replication(**more), self, self.store, launcher or InProcess(), Request())

    def withdraw(self, side: str, *acls: Acl) -> None:
        self.cluster.withdraw(self.users[side], *acls)

    def grant(self, side: str, *acls: Acl) -> None:
        self.cluster.grant(self.users[side], *acls)

    def produce(self, count: int) -> None:
        producer = Producer({**self.cluster.as_admin(), "log_level": 0})
        for number in range(count):
            producer.produce(TOPIC, b"value-%d" % number, b"key-%d" % number)
        assert producer.flush(30) == 0

    def values(self, topic: str) -> list[list[bytes | None]]:
        """What a ``read_committed`` reader finds in each partition."""
        settings = {"group.id": "judge", "enable.partition.eof": True, "auto.offset.reset": "earliest", "log_level": 0}
        found: list[list[bytes | None]] = [[], []]
        for partition, values in enumerate(found):
            with closing(Consumer({**self.cluster.as_admin(), **settings})) as consumer:
                consumer.assign([TopicPartition(topic, partition, 0)])
                while (message := consumer.poll(30)) is None or message.error() is None:
                    assert message is not None, "no answer for 30 s"
                    values.append(message.value())
        return found

    def assert_copied(self) -> None:
        """Nothing is lost and nothing is there twice."""
        assert self.values(COPY) == self.values(TOPIC)

    def names(self) -> set[str]:
        return set(self.cluster.admin.list_topics(timeout=30).topics)

    def empty_the_target(self) -> None:
        """As it is before the first run."""
        there = sorted({COPY, POSITIONS, RECEIPTS} & self.names())
        for future in self.cluster.admin.delete_topics(there).values() if there else ():
            future.result(30)
        wait_until(lambda: not {COPY, POSITIONS, RECEIPTS} & self.names())

    def fill_the_target(self) -> None:
        """As it is after a run."""
        if not {COPY, POSITIONS, RECEIPTS} <= self.names():
            self.new_store()
            assert self.run() == ""
