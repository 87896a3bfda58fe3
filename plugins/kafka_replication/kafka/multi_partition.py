"""Says where the records of a chunk lie that are in several target partitions, or between records of others.

Records of several source partitions interleave in one target partition. So a receipt has the exact offsets, and every
record gets a delivery callback.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from confluent_kafka import KafkaError

from kafka_replication.copying.sink import Record
from kafka_replication.kafka import offsets, topics
from kafka_replication.kafka.partitioner import Partitioner, partitioner
from kafka_replication.kafka.session import KafkaSession, check_end, refuse_left_open
from kafka_replication.ledger.entries import Ids, Position
from kafka_replication.ledger.placement import KafkaPartitions, Part
from kafka_replication.model.choices import EXACTLY_ONCE, Partitioning
from kafka_replication.model.errors import Refused, ReplicationError, SessionEnded, Stalled, Unreachable
from kafka_replication.model.offsets import Coverage, OffsetRange, PartitionKey, TopicPartition
from kafka_replication.planning.lost_end import epochs_of
from kafka_replication.planning.snapshot import Problem
from kafka_replication.verification.digests import Fingerprint

# So that a receipt stays below 1 MB, the usual max.message.bytes: a range takes at most 42 bytes.
MOST_RANGES = 16_384


@dataclass(slots=True)
class _Growing:
    """The records that were sent to one target partition, and their places as far as they are acknowledged."""

    seen: Fingerprint = field(default_factory=Fingerprint)
    acknowledged: int = 0
    ranges: list[list[int]] = field(default_factory=list)
    until: int = -1  # of the last range

    def lies_at(self, offset: int) -> bool:
        """Note the offset of the next record. False if it is not above the one before: then the order is not ours."""
        self.acknowledged += 1
        if offset == self.until:
            self.ranges[-1][1] = self.until = offset + 1
            return True
        if offset < max(0, self.until):
            return False
        self.ranges.append([offset, offset + 1])
        self.until = offset + 1
        return True

    def part(self, partition: int) -> Part:
        offsets_ = Coverage(tuple(OffsetRange(*pair) for pair in self.ranges))
        return Part(partition=partition, offsets=offsets_, count=self.seen.count, digest=self.seen.hexdigest())


@dataclass(slots=True, kw_only=True)
class Offsets:
    """The places of one chunk, of which each record is acknowledged by itself."""

    key: PartitionKey
    partitioner: Partitioner
    error: Callable[[KafkaError, str], ReplicationError]  # names one of Kafka's
    ends: dict[int, int] = field(default_factory=dict)  # one past our last record before this chunk, by partition
    check_logs: Callable[[Mapping[int, int]], None] = lambda first: None  # raises if one may have lost its end
    _growing: dict[int, _Growing] = field(default_factory=dict)
    _misplaced: KafkaError | None = None  # an acknowledgement without an offset, or with one that is too low
    each = True

    def partitions(self, batch: Sequence[Record]) -> Iterator[int]:
        choose, growing = self.partitioner.choose, self._growing
        for record in batch:
            partition = choose(record)
            _, timestamp, key, value, headers = record
            if partition not in growing:
                growing[partition] = _Growing()
            growing[partition].seen.add(timestamp, key, value, headers)
            yield partition

    def acknowledged(self, partition: int, offset: int) -> None:
        if not self._growing[partition].lies_at(offset):
            self._misplaced = KafkaError(KafkaError._TIMED_OUT, f"a record was acknowledged at {offset}")

    def check(self, sent: int) -> None:
        if sum(len(growing.ranges) for growing in self._growing.values()) > MOST_RANGES:
            raise Stalled(
                f"{self.key.source}: other writers share the target topic {self.key.target_topic}: {sent} records"
                f" of a chunk lie in more than {MOST_RANGES} pieces",
                "smaller chunks are tried by themselves; lower copy.chunk_records if this stays",
            )

    def placement(self, sent: int, digest: str) -> KafkaPartitions:  # noqa: ARG002  # each part has its own
        unknown = [number for number, growing in self._growing.items() if growing.acknowledged != growing.seen.count]
        if unknown or self._misplaced:
            error = KafkaError(KafkaError._TIMED_OUT, f"not every record was acknowledged in partitions {unknown}")
            raise self.error(self._misplaced or error, "sending")
        for number, growing in self._growing.items():
            at = TopicPartition(self.key.target_topic, number)
            check_end(at, growing.ranges[0][0], self.ends.get(number, 0))  # it may have lost its end while we wrote
            self.ends[number] = growing.until
        self.check_logs({number: growing.ranges[0][0] for number, growing in self._growing.items()})
        return KafkaPartitions(
            self.partitioner.by, tuple(growing.part(number) for number, growing in sorted(self._growing.items()))
        )


class EachOffset:
    """The layout of a source partition whose target partitions have other writers, too: at least our other source
    partitions.

    So records that the ledger does not know are no reason to stop. Audits find them (`runs.audit`).
    """

    def __init__(self, session: KafkaSession, ids: Ids, partitioning: Partitioning) -> None:
        self._session, self._ids, self._partitioning = session, ids, partitioning
        self._ends = dict[int, int]()  # one past our last record, by target partition
        self._seen = dict[int, int]()  # where each log ended before the chunk

    @cached_property
    def _replicas(self) -> dict[int, int]:
        """The number of replicas of each partition that the target topic has when it is first asked. Raises Refused."""
        name = self._session.key.target_topic
        described = topics.descriptions(self._session.admin, [name]).get(name)
        if described is None:
            raise Refused(f"{name} on the target is gone", "plan again: the plan says what to do")
        return {partition.id: len(partition.replicas) for partition in described.partitions}

    @cached_property
    def _partitioner(self) -> Partitioner:
        return partitioner(
            self._partitioning, self._session.key.source, self._replicas.keys(), self._ids.source_cluster
        )

    def check_target(self, position: Position) -> None:
        """Raise ForeignWriter if the target lost records of ours, Refused if its partitions are not those planned."""
        self._session.refuse_change(self._partitioning, position)
        key, by = self._session.key, self._partitioner.by
        # The plan has refused what may not change, so this is about a topic that grew meanwhile.
        before = position.spread.by.partitions if position.spread else by.partitions
        moves = self._partitioning.moves_keys() and self._partitioning.stated != by.partitions
        if by.partitions < before or (by.partitions > before and moves):
            raise Refused(
                f"{key.target_topic} has {by.partitions} partitions, not {before} as before",
                "plan again: the plan says what to do",
            )
        self._ends = dict(position.ends(key.source.partition)) if position.spread else {}
        ours, places = position.ends(key.source.partition), self._places(range(by.partitions))
        hiding, epochs = list[TopicPartition](), dict[int, int]()
        for at, there in sorted(offsets.all_three(self._session.admin, places).items()):
            if isinstance(there, Problem):
                raise Unreachable(there.what, there.remedy)
            check_end(at, there.high_watermark, ours.get(at.partition, 0))
            self._seen[at.partition] = there.high_watermark
            hiding += [at] if there.is_hiding else []
            epochs |= {} if there.leader_epoch is None else {at.partition: there.leader_epoch}
        seen = epochs_of(key, position)
        # A broker of Kafka 3.9 that has the only replica keeps its leader epoch when it is started again.
        changed = any(seen.get(number) != epoch or self._replicas[number] == 1 for number, epoch in epochs.items())
        # What others of us lost there, too, would be covered by what this session appends.
        others = {
            other: reached
            for other, reached in (self._session.ledger.view().positions if changed else {}).items()
            if reached.ids.target_topic == position.ids.target_topic and reached.delivery == EXACTLY_ONCE
        }
        refuse_left_open(self._session.admin, [key, *others], hiding)
        self._session.epochs = epochs
        now = offsets.high_watermarks(self._session.admin, places) if others else {}  # others may be at work
        for at, end in sorted(now.items()):
            self._seen[at.partition] = end
            # A log is cut at its end: if anything is lost there, then the last record of all.
            ends = {other: one.ends(other.source.partition).get(at.partition, 0) for other, one in others.items()}
            last = max(ends, key=lambda other: (ends[other], other))
            check_end(at, end, ends[last])
            if ends[last]:
                self._session.refuse_lost_end(last, others[last], {at.partition: ends[last]})

    def _places(self, partitions: Iterable[int]) -> list[TopicPartition]:
        return [TopicPartition(self._session.key.target_topic, number) for number in sorted(partitions)]

    def _check_logs(self, first: Mapping[int, int]) -> None:
        """Raise SessionEnded if one of these target partitions may have lost records of other source partitions, in
        whose place those of this chunk would lie: its first record was acknowledged below the end that was seen before
        it, or the leader epoch is another one than at `check_target`. The next session looks.

        What others append behind that first record is read back only after this transaction.
        """
        now = offsets.ends_now(self._session.admin, self._places(first))
        for at in self._places(first):
            seen = self._seen.get(at.partition, 0)
            end, epoch = now.get(at, (seen, None))
            if at.partition in self._session.epochs and self._session.epochs[at.partition] != epoch:
                raise SessionEnded(f"{at} on the target has another leader than when this session began", "run again")
            if first[at.partition] < seen:
                raise SessionEnded(
                    f"{at} on the target ended at {seen}, but a record that was sent later was"
                    f" acknowledged at {first[at.partition]}: it may have lost its end",
                    "run again",
                )
            self._seen[at.partition] = end

    def begin(self) -> Offsets:
        return Offsets(
            key=self._session.key,
            partitioner=self._partitioner,
            error=self._session.sender.error,
            ends=self._ends,
            check_logs=self._check_logs,
        )
