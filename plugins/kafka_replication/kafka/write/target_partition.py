"""One partition's place on the target: its ledger, the id of its topic, and where its log begins and ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial

from confluent_kafka.admin import AdminClient

from kafka_replication.config import Copy
from kafka_replication.kafka.client import clients
from kafka_replication.kafka.ledger import KafkaLedger
from kafka_replication.kafka.metadata import offsets, open_transactions, shared_offsets, topics
from kafka_replication.kafka.read.cursor import RUN_AGAIN, first_record
from kafka_replication.kafka.write.producers.transactions import longest_wait
from kafka_replication.ledger.entries import ONE_WRITER, Ids, Position
from kafka_replication.ledger.port import Ledger
from kafka_replication.model.errors import ForeignWriter, GapFound, TargetLost
from kafka_replication.model.keys import PartitionKey, consumer_group
from kafka_replication.model.offsets import OffsetRange, TopicPartition, readable
from kafka_replication.planning.lost_end import proven_lost
from kafka_replication.runtime.deadline import Deadline


def check_end(at: TopicPartition, end: int, ours: int) -> None:
    """Raise TargetLost if a target partition that ``end``s here does not have all of our records, which were there up
    to ``ours``.
    """
    if end < ours:
        raise TargetLost(
            f"{at} on the target ends at {end}, but our records were there up to {ours}: the target lost data",
            RUN_AGAIN,
        )


def refuse_left_open(admin: AdminClient, keys: Iterable[PartitionKey], hidden: Iterable[TopicPartition]) -> None:
    """Raise TargetLost if one of these target partitions has an open transaction of these keys that Kafka has ended
    without this partition. Nobody ends it any more, and the next commit of the same key would show what is in it,
    aborted or not.
    """
    ids = {key.transactional_id for key in keys}
    for at in hidden:
        if open_transactions.never_ends(admin, at, ids):
            raise TargetLost(
                f"{at} on the target has records of an earlier session of ours in a transaction that Kafka has ended"
                " without this partition",
                "run again, which ends it; where that run says that it cannot ([not-mended]), let"
                f" kafka-transactions.sh abort it: --topic {at.topic} --partition {at.partition}",
            )


@dataclass(kw_only=True)
class TargetPartition:
    """Reads what a session has to know of its target partition. It writes nothing."""

    key: PartitionKey
    target: clients.ClientConfig
    settings: Copy
    deadline: Deadline
    shared_ledger: Ledger | None = None  # None: this partition's session reads the ledger anew

    @cached_property
    def admin(self) -> AdminClient:
        return clients.shared_admin(self.target)

    @cached_property
    def ledger(self) -> Ledger:
        """Reads the key's ledger partition once, later only the new entries."""
        return self.shared_ledger or KafkaLedger(self.target, self.admin, self.key.replication, self.deadline)

    def check_ids(self, ids: Ids) -> None:
        """Raise Refused unless the target topic still has this id."""
        seconds = self.deadline.within(topics.TIMEOUT)
        topics.check_id(self.admin, self.key.target_topic, ids.target_topic, "target", seconds)

    def end(self) -> tuple[int, int | None]:
        """The target's end, after waiting until no open transaction hides records below it, and a leader epoch that it
        had before. Raises Stalled; raises TargetLost at once if the transaction is one that nobody ends.
        """
        at, most = self.key.target, longest_wait(self.settings, self.deadline)
        if (shown := shared_offsets.shown_log(self.admin, at)) is not None:
            return shown
        epoch, refuse = offsets.leader_epoch(self.admin, at), partial(refuse_left_open, self.admin, [self.key])
        return offsets.stable_ends(self.admin, [at], most, hidden=refuse)[at], epoch

    def refuse_lost_end(self, key: PartitionKey, position: Position, doubtful: Mapping[int, int]) -> None:
        """Raise TargetLost if the last record of this key is not before these ends of its position, by target
        partition: without that record, what we append would cover the place of lost ones.

        Retention may explain that it is missing, and compaction.
        """
        if not doubtful:
            return
        starts = offsets.log_starts(self.admin, [TopicPartition(key.target_topic, number) for number in doubtful])
        missing = {
            at.partition: end
            for at, start in starts.items()
            if start < (end := doubtful[at.partition]) and self.first_record(at, OffsetRange(end - 1, end)) is None
        }
        if not missing:
            return
        receipts = self.ledger.receipts({key: position.receipts_from})
        config = topics.config(self.admin, key.target_topic)
        for number in proven_lost(key, self.ledger.view(), receipts, missing, config):
            raise TargetLost(
                f"{key.target_topic}-{number} on the target does not show our last record of {key.source}, which was at"
                f" offset {missing[number] - 1}: the target lost data, and other records lie there now",
                RUN_AGAIN,
            )

    def first_record(self, at: TopicPartition, wanted: OffsetRange) -> int | None:
        try:
            return first_record(self.target, consumer_group(self.key.replication), at, wanted)
        except GapFound:  # another leader may have been elected since its end was asked for
            check_end(at, offsets.high_watermarks(self.admin, [at])[at], wanted.from_ + 1)
            raise

    def high_watermark(self) -> int:
        return offsets.high_watermarks(self.admin, [self.key.target])[self.key.target]

    def refuse_foreign_records(self, ours: int, until: int) -> None:
        """Raise ForeignWriter if a record lies between the end of our records and ``until``."""
        if ours >= until:
            return
        at = self.key.target
        start = offsets.log_starts(self.admin, [at])[at]
        wanted = readable(max(start, ours), until)
        foreign = self.first_record(at, wanted)
        if foreign is not None:
            raise ForeignWriter(
                f"{at} on the target holds a record at offset {foreign} that the ledger does not know"
                f" (ours end at {ours})",
                ONE_WRITER,
            )
