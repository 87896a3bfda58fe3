"""The logs of a target cluster, whoever wrote them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing

from confluent_kafka.admin import AdminClient

from kafka_replication.kafka.metadata import offsets, open_transactions, topics
from kafka_replication.kafka.read.cursor import Cursor, first_record
from kafka_replication.kafka.write.producers.transactions import longest_wait
from kafka_replication.model.errors import NotReady
from kafka_replication.model.keys import consumer_group
from kafka_replication.model.offsets import Coverage, OffsetRange, TopicPartition, readable
from kafka_replication.planning.snapshot import PartitionOffsets
from kafka_replication.runtime.deadline import Deadline
from kafka_replication.runtime.stall_clock import StallClock
from kafka_replication.targets.port import Failures, Standing, TargetSettings

AT_REST = 3.0  # seconds; a log that has not grown for so long gets no more of the records that were sent
LOOK = 0.1


class KafkaStanding(Standing):
    """Of one cluster, for one replication."""

    commit_takes = 1  # a marker in each partition of the transaction

    def __init__(self, settings: TargetSettings, admin: Callable[[], AdminClient], deadline: Deadline) -> None:
        self._config, self._copying = settings.connection, settings.replication.copying
        self._admin, self._deadline = admin, deadline
        self._group = consumer_group(settings.replication.name)
        self._patience = offsets.Patience.within(settings.replication.timeouts.request)

    def logs(self, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetRange]:
        return offsets.readable_logs(self._admin(), wanted, self._patience)

    def starts(self, wanted: Iterable[TopicPartition]) -> tuple[dict[TopicPartition, int], Failures]:
        return offsets.log_starts_each(self._admin(), wanted)

    def ends(self, wanted: Iterable[TopicPartition]) -> tuple[dict[TopicPartition, int], Failures]:
        return offsets.last_stable_each(self._admin(), wanted)

    def stable_ends(
        self, wanted: Iterable[TopicPartition], seconds: float | None = None
    ) -> tuple[dict[TopicPartition, int], Failures]:
        most = longest_wait(self._copying, self._deadline) if seconds is None else seconds
        return offsets.stable_ends_each(self._admin(), wanted, most)

    def hiding(self, wanted: Iterable[TopicPartition]) -> set[TopicPartition]:
        there = offsets.all_three(self._admin(), wanted, self._patience)
        return {at for at, log in there.items() if isinstance(log, PartitionOffsets) and log.is_hiding}

    def left_open(self, at: TopicPartition) -> Mapping[str, int]:
        return open_transactions.owners(self._admin(), at)

    def hidden_by(self, at: TopicPartition, session_id: str) -> Coverage:
        return open_transactions.offsets_of(self._admin(), at, session_id)

    def certain_ends(self, wanted: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        from kafka_replication.kafka.metadata.certain_ends import certain_ends  # only after a loss

        return certain_ends(self._config, self._admin(), wanted, self._patience.request)

    def at_rest(self, at: TopicPartition, expected: int) -> OffsetRange:
        rest, end, admin = StallClock(AT_REST), 0, self._admin()
        while (end := offsets.last_stable(admin, [at])[at]) < expected and not rest.is_over(-end):
            time.sleep(LOOK)
        return readable(offsets.log_starts(admin, [at])[at], end)

    def check_all_shown(self, at: TopicPartition, until: int) -> None:
        """With fewer in-sync replicas than min.insync.replicas a leader takes records with acks=0 and acks=1, and shows
        them to nobody until the replicas are back (KIP-966). What is not shown is not lost.
        """
        admin = self._admin()
        needed = int(topics.config(admin, at.topic)["min.insync.replicas"])
        for partition in topics.descriptions(admin, [at.topic])[at.topic].partitions:
            if partition.id == at.partition and len(partition.isr) < needed:
                raise NotReady(
                    f"{at} on the target has {len(partition.isr)} in-sync replicas of {needed}"
                    " (min.insync.replicas), so it may hide records that it has: what is lost cannot be counted",
                    "bring the missing replicas back; the next run goes on",
                )
        if (end := offsets.last_stable(admin, [at])[at]) > until:
            raise NotReady(f"{at} on the target has grown from {until} to {end} meanwhile", "run again")

    def first_record(self, at: TopicPartition, wanted: OffsetRange) -> int | None:
        return first_record(self._config, self._group, at, wanted)

    def reader(self, at: TopicPartition) -> closing[Cursor]:
        return closing(Cursor(self._config, self._group, at, self._copying.stall_timeout))
