"""Looks for records that target partitions have already, those of others, before ours; and commits the start offsets of
new partitions in one transaction, before anything is copied.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from kafka_replication.ledger.account import Change
from kafka_replication.ledger.entries import Entry, Position
from kafka_replication.ledger.placement import SpreadEnds
from kafka_replication.ledger.view import LedgerView
from kafka_replication.ledger.writing import apply
from kafka_replication.model.choices import EXACTLY_ONCE, SOLE, Delivery, PartitionedBy, Partitioning
from kafka_replication.model.errors import ReplicationError
from kafka_replication.model.offsets import PartitionKey, TopicPartition, opening_id, readable
from kafka_replication.targets.port import Target

Place = tuple[TopicPartition, int]  # with an offset
Ends = dict[int, int]  # of target partitions
Failed = dict[PartitionKey, ReplicationError]


class TargetRecords:
    """Looks for records in target partitions of one replication, whose records are spread as ``partitioning`` says.

    ``seconds`` is for how long it waits for a session that hides records; None: as long as one of ours can last.
    """

    def __init__(self, target: Target, partitioning: Partitioning = SOLE) -> None:
        self._target, self._partitioning = target, partitioning

    def occupied(self, keys: Collection[PartitionKey], seconds: float | None = None) -> dict[PartitionKey, Place]:
        """The partitions whose target has records for a reader, with the place of the first one.

        Raises Stalled if an open transaction hides records, and Unreachable.
        """
        occupied, unknown = self.occupied_each(keys, seconds)
        for error in unknown.values():
            raise error
        return occupied

    def occupied_each(
        self, keys: Collection[PartitionKey], seconds: float | None = None, known: Collection[PartitionKey] = ()
    ) -> tuple[dict[PartitionKey, Place], Failed]:
        """As `occupied`, with the reason for each partition whose target cannot be read.

        Where several keys write to one target topic, it may have records of those ``known``, so it is not searched.
        """
        written = set[str]() if self._partitioning.sole else {key.target_topic for key in known}
        ends, unknown = self.ends([key for key in keys if key.target_topic not in written], seconds)
        at = {TopicPartition(key.target_topic, number): end for key in ends for number, end in ends[key].items()}
        first, failed = self._first_each(at)
        occupied = {}
        for key in ends:
            places = [TopicPartition(key.target_topic, number) for number in ends[key]]
            if errors := [failed[place] for place in places if place in failed]:
                unknown[key] = errors[0]
            elif found := [(place, first[place]) for place in places if place in first]:
                occupied[key] = found[0]
        return occupied, unknown

    def ends(
        self, keys: Collection[PartitionKey], seconds: float | None = None
    ) -> tuple[dict[PartitionKey, Ends], Failed]:
        """The ends of each key's target partitions, once no open transaction hides records below it; or why they are
        not known.
        """
        places = self._places(keys)
        ends, failures = self._target.standing.stable_ends({at for here in places.values() for at in here}, seconds)
        failed = {
            key: failures[at] for key, here in places.items() for at in here if at in failures
        }  # the last one is reported
        known = {
            key: {at.partition: ends[at] for at in here}
            for key, here in places.items()
            if all(at in ends for at in here)
        }
        return known, failed

    def _places(self, keys: Collection[PartitionKey]) -> dict[PartitionKey, list[TopicPartition]]:
        """The target partitions in which records of the keys may come to lie."""
        if self._partitioning.keeps:
            return {key: [key.target] for key in keys}
        there = self._target.catalogue.partitions({key.target_topic for key in keys}) if keys else {}
        return {
            key: [
                TopicPartition(key.target_topic, number)
                for number in self._partitioning.targets(key.source.partition, there[key.target_topic])
            ]
            for key in keys
            if key.target_topic in there
        }

    def _first_each(
        self, ends: Mapping[TopicPartition, int]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, ReplicationError]]:
        """The offset of the first record of each partition that has one."""
        starts, unknown = self._target.standing.starts(ends)
        first, failed = dict[TopicPartition, int](), dict(unknown)
        for at, start in starts.items():
            try:
                found = self._target.standing.first_record(at, readable(start, ends[at]))
            except ReplicationError as error:
                failed[at] = error
                continue
            if found is not None:
                first[at] = found
        return first, failed


class StartOffsets:
    """Commits the start offsets of one replication's new partitions. A later instance fences an earlier one."""

    def __init__(
        self, replication: str, target: Target, placing: Partitioning = SOLE, delivery: Delivery = EXACTLY_ONCE
    ) -> None:
        self._ledger, self._placing = target.ledger, placing
        self._delivery: Delivery = delivery
        self.records = TargetRecords(target, placing)
        what = f"committing start offsets of {replication}"
        self._transaction = target.writer(opening_id(replication), what)

    def close(self) -> None:
        self._transaction.close()

    def fence(self) -> LedgerView:
        """Fence every earlier instance. Returns the entries that exist then; only this instance can add positions."""
        self._transaction.fence()
        return self._ledger.view()

    def commit(
        self,
        positions: Mapping[PartitionKey, Position],
        ends: Mapping[PartitionKey, Ends],
        more: Iterable[tuple[PartitionKey, Entry]] = (),
    ) -> dict[PartitionKey, Position]:
        """Commit all of these positions and ``more`` entries, or none; without transactions, some.

        Below ``ends`` a target may have records of others: ours follow them. Other targets must be empty.
        """
        more = tuple(more)
        receipts = self._ledger.receipt_ends()  # read after fencing: all receipts of these partitions will lie above
        started = {
            key: replace(
                beginning(position, key, self._placing, ends.get(key, {})),
                receipts_from=receipts[key.ledger_partition],
                delivery=self._delivery,
            )
            for key, position in positions.items()
        }
        if started or more:
            changes = [Change(key=key, write=(entry,)) for key, entry in (*started.items(), *more)]
            apply(self._ledger, self._transaction, changes)
        return started


def beginning(position: Position, key: PartitionKey, partitioning: Partitioning, ends: Ends) -> Position:
    """The position of a partition of which nothing was copied yet. Others wrote to its target partitions up to
    ``ends``, as far as that is known.
    """
    if partitioning.keeps:
        return replace(position, target_end=ends.get(key.source.partition, 0), spread=None)
    if not ends:
        return replace(position, target_end=0, spread=None)
    by = PartitionedBy(name=partitioning.name, hash="", partitions=max(ends) + 1)
    return replace(position, target_end=0, spread=SpreadEnds.nothing(by).with_(by, ends))
