"""The session of a source partition whose records lie in several target partitions, or between records of others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

from kafka_replication.copying.sink import SetAside
from kafka_replication.kafka import offsets, topics
from kafka_replication.kafka.chunk_places import Offsets, check_end
from kafka_replication.kafka.commit import Atomic
from kafka_replication.kafka.partitioner import Partitioner, partitioner
from kafka_replication.kafka.session import refuse_left_open
from kafka_replication.ledger.entries import Ids, Position
from kafka_replication.model.choices import EXACTLY_ONCE, Partitioning
from kafka_replication.model.errors import Refused, SessionEnded, Unreachable
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.model.trouble import Trouble
from kafka_replication.planning.lost_end import epochs_of


class SpreadSession(Atomic):
    """A session of a source partition whose target partitions have other writers, too: at least our other source
    partitions.

    So records that the ledger does not know are no reason to stop. Audits find them (`runs.audit`).
    """

    batches = None

    def __init__(self, *arguments: Any, ids: Ids, aside: SetAside | None, partitioning: Partitioning) -> None:
        """As a `KafkaSession`, with what chooses the target partition of a record."""
        super().__init__(*arguments, ids=ids, aside=aside)
        self._source_cluster, self._partitioning = ids.source_cluster, partitioning
        self._ends = dict[int, int]()  # one past our last record, by target partition
        self._seen = dict[int, int]()  # where each log ended before the chunk

    @cached_property
    def _replicas(self) -> dict[int, int]:
        """The number of replicas of each partition that the target topic has when it is first asked. Raises Refused."""
        name = self.key.target_topic
        described = topics.descriptions(self.admin, [name]).get(name)
        if described is None:
            raise Refused(f"{name} on the target is gone", "plan again: the plan says what to do")
        return {partition.id: len(partition.replicas) for partition in described.partitions}

    @cached_property
    def _partitioner(self) -> Partitioner:
        return partitioner(self._partitioning, self.key.source, self._replicas.keys(), self._source_cluster)

    def check_target(self, position: Position) -> None:
        """Raise ForeignWriter if the target lost records of ours, Refused if its partitions are not those planned."""
        self.refuse_change(self._partitioning, position)
        key, by = self.key, self._partitioner.by
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
        for at, there in sorted(offsets.all_three(self.admin, places).items()):
            if isinstance(there, Trouble):
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
            for other, reached in (self.ledger.view().positions if changed else {}).items()
            if reached.ids.target_topic == position.ids.target_topic and reached.delivery == EXACTLY_ONCE
        }
        refuse_left_open(self.admin, [key, *others], hiding)
        self.epochs = epochs
        now = offsets.high_watermarks(self.admin, places) if others else {}  # others may be at work
        for at, end in sorted(now.items()):
            self._seen[at.partition] = end
            # A log is cut at its end: if anything is lost there, then the last record of all.
            ends = {other: one.ends(other.source.partition).get(at.partition, 0) for other, one in others.items()}
            last = max(ends, key=lambda other: (ends[other], other))
            check_end(at, end, ends[last])
            if ends[last]:
                self.refuse_lost_end(last, others[last], {at.partition: ends[last]})

    def _places(self, partitions: Iterable[int]) -> list[TopicPartition]:
        return [TopicPartition(self.key.target_topic, number) for number in sorted(partitions)]

    def _check_logs(self, first: Mapping[int, int]) -> None:
        """Raise SessionEnded if one of these target partitions may have lost records of other source partitions, in
        whose place those of this chunk would lie: its first record was acknowledged below the end that was seen before
        it, or the leader epoch is another one than at `check_target`. The next session looks.

        What others append behind that first record is read back only after this transaction.
        """
        now = offsets.ends_now(self.admin, self._places(first))
        for at in self._places(first):
            seen = self._seen.get(at.partition, 0)
            end, epoch = now.get(at, (seen, None))
            if at.partition in self.epochs and self.epochs[at.partition] != epoch:
                raise SessionEnded(f"{at} on the target has another leader than when this session began", "run again")
            if first[at.partition] < seen:
                raise SessionEnded(
                    f"{at} on the target ended at {seen}, but a record that was sent later was"
                    f" acknowledged at {first[at.partition]}: it may have lost its end",
                    "run again",
                )
            self._seen[at.partition] = end

    def _chunk_places(self) -> Offsets:
        return Offsets(
            key=self.key,
            partitioner=self._partitioner,
            error=self.sender.error,
            ends=self._ends,
            check_logs=self._check_logs,
        )
