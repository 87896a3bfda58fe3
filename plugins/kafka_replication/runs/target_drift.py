"""Compares the target as it is with what the ledger says is there: what was removed, and what others wrote behind us.

Two offsets of each partition show that nothing has changed; only where they differ something is read.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from kafka_replication.config import Replication
from kafka_replication.kafka import offsets
from kafka_replication.ledger.entries import Removed
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.choices import EXACTLY_ONCE, LOSSY
from kafka_replication.model.errors import ReplicationError
from kafka_replication.model.offsets import MAX_OFFSET, OffsetRange, PartitionKey, TopicPartition, readable
from kafka_replication.model.times import now
from kafka_replication.planning.lost_end import in_doubt, proven_lost
from kafka_replication.planning.snapshot import Snapshot, Topic
from kafka_replication.planning.target_retention import Retention, expected_end, may_be_gone, offsets_on, removed
from kafka_replication.runs.clusters import Clusters
from kafka_replication.runtime import background

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Compares one snapshot, or the targets' present ends, with the ledger."""

    replication: Replication
    clusters: Clusters
    run_id: str

    def compared(self, view: LedgerView, snapshot: Snapshot) -> Snapshot:
        """The snapshot with what was removed from the target, and with records of others behind ours."""
        return replace(
            snapshot,
            removed=self._removed(view, snapshot),
            foreign=self._foreign_in(view, snapshot),
            lost=self.lost(view, snapshot.target),
        )

    def _removed(self, view: LedgerView, snapshot: Snapshot) -> dict[PartitionKey, Removed]:
        keys = [key for key in view.positions if may_be_gone(view[key], snapshot.target.get(key.target_topic))]
        there = {key: offsets_on(key, view.positions[key], snapshot.target.get(key.target_topic)) for key in keys}
        if not keys:
            return {}
        wanted = {key: view[key].removed.receipts_from for key in keys}
        receipts, young = self.clusters.ledger.receipts(wanted), self._young(keys, snapshot)
        return {
            key: removed(
                view[key],
                receipts,
                {number: one.log_start for number, one in there[key].items()},
                Retention.in_config(snapshot.target[key.target_topic].config),
                young.get(key.source),
                (self.run_id, now()),
            )
            for key in keys
        }

    def _young(self, keys: Collection[PartitionKey], snapshot: Snapshot) -> Mapping[TopicPartition, int]:
        """For each source partition the first offset whose record is younger than the target's ``retention.ms``."""
        asked: dict[int, set[TopicPartition]] = {}
        for key in keys:
            source = snapshot.source.get(key.source.topic)
            millis = Retention.in_config(snapshot.target[key.target_topic].config).millis
            if millis is not None and source is not None and key.source.partition in source.readable:
                asked.setdefault(millis, set()).add(key.source)
        present, found = int(datetime.now(UTC).timestamp() * 1000), dict[TopicPartition, int]()
        patience = offsets.Patience.within(self.replication.timeouts.request)
        for millis, partitions in asked.items():
            answers, _ = offsets.at_time_each(
                self.clusters.source_admin, partitions, max(0, present - millis), patience
            )
            found |= answers
        return found

    def lost_now(self, view: LedgerView, keys: Collection[PartitionKey]) -> dict[PartitionKey, frozenset[int]]:
        """The same as `lost` for these keys, as of now."""
        view = replace(view, positions={key: position for key, position in view.positions.items() if key in keys})
        return self.lost(view, self.clusters.target.catalogue.topics({key.target_topic for key in view.positions}))

    def lost(self, view: LedgerView, target: Mapping[str, Topic]) -> dict[PartitionKey, frozenset[int]]:
        """By key the target partitions that end before our last record, or where readers do not find it at its place.

        It is looked for where the leader epoch has changed since the position was written, and where anything lies
        behind the last record of all, but not where retention or compaction may explain that it is gone, or where an
        open transaction hides it. A log is cut at its end: while the last record of all is there, nothing is lost.
        """
        found = dict[PartitionKey, set[int]]()
        there_is = dict[TopicPartition, list[tuple[int, PartitionKey]]]()  # our last records that should be there
        asked = set[TopicPartition]()
        expected = {at: self._expected_end(keys, view, at) for at, keys in _writers(view).items()}
        for key, position in view.positions.items():
            there = offsets_on(key, position, target.get(key.target_topic))
            epochs = {number: one.leader_epoch for number, one in there.items() if one.leader_epoch is not None}
            ends = position.ends(key.source.partition) if position.delivery not in LOSSY else {}
            doubtful = in_doubt(key, position, epochs)
            for number in ends.keys() & epochs.keys():
                end, of_log, at = ends[number], there[number], TopicPartition(key.target_topic, number)
                if of_log.high_watermark < end:
                    found.setdefault(key, set()).add(number)
                elif of_log.log_start < end <= of_log.last_stable:
                    there_is.setdefault(at, []).append((end, key))
                    if number in doubtful or of_log.high_watermark > expected[at]:
                        asked.add(at)
        unseen = self._unseen({at: there_is[at] for at in asked})
        if unseen:
            since = {key: view.positions[key].receipts_from for key in unseen}
            receipts = self.clusters.ledger.receipts(since)
            for key, ends in unseen.items():
                config = target[key.target_topic].config
                found.setdefault(key, set()).update(proven_lost(view[key], receipts, ends, config))
        return {key: frozenset(numbers) for key, numbers in found.items() if numbers}

    def _unseen(
        self, wanted: Mapping[TopicPartition, Collection[tuple[int, PartitionKey]]]
    ) -> dict[PartitionKey, dict[int, int]]:
        """By key and target partition the ends of last records that readers do not find. ``wanted`` has the ends."""
        unseen = dict[PartitionKey, dict[int, int]]()

        def look(at: TopicPartition) -> None:
            try:
                for end, key in sorted(wanted[at], reverse=True):
                    if self.clusters.target.standing.first_record(at, OffsetRange(end - 1, end)) is not None:
                        return
                    unseen.setdefault(key, {})[at.partition] = end
            except ReplicationError as error:
                log.warning("%s: our last record was not looked for: %s", at, error)

        background.at_once(wanted, look, "look")
        return unseen

    def _foreign_in(self, view: LedgerView, snapshot: Snapshot) -> dict[PartitionKey, int]:
        ends = dict[TopicPartition, OffsetRange]()
        for key, position in view.positions.items():
            for number, there in offsets_on(key, position, snapshot.target.get(key.target_topic)).items():
                at = TopicPartition(key.target_topic, number)
                ends[at] = there.readable
        return self._foreign(view, ends)

    def foreign_now(self, view: LedgerView, keys: Collection[PartitionKey]) -> dict[PartitionKey, int]:
        """The partitions that hold a record of somebody else behind our last one now, with its offset.

        A partition that does not answer is left out.
        """
        wanted = {at for key in keys for at in _ours(key, view)}
        logs = self.clusters.target.standing.logs(wanted)
        return {key: offset for key, offset in self._foreign(view, logs).items() if key in keys}

    def _expected_end(self, keys: Collection[PartitionKey], view: LedgerView, at: TopicPartition) -> int:
        if self.replication.placing.shared:  # others write there all the time
            return MAX_OFFSET
        takes = self.clusters.target.standing.commit_takes
        return max(expected_end(view[key], at.partition, takes) for key in keys)

    def _foreign(self, view: LedgerView, logs: Mapping[TopicPartition, OffsetRange]) -> dict[PartitionKey, int]:
        """``logs`` has what is readable of each target partition. All keys that write there must be in ``view``.

        Where several keys write, a foreign record is found behind the last record of all, and reported for each.
        What lies behind copies that were made without transactions is judged by who reads them back.
        """
        if self.replication.placing.shared:
            return {}
        writers = _writers(view)
        suspects = [
            at
            for at, there in logs.items()
            if all(view.positions[key].delivery == EXACTLY_ONCE for key in writers[at])
            and there.until > self._expected_end(writers[at], view, at)
        ]
        if not suspects:
            return {}
        view, found = self.clusters.ledger.view(), dict[PartitionKey, int]()  # a run may be at work: as of now
        writers = _writers(view)
        for at in suspects:
            ends = [view.positions[key].ends(key.source.partition).get(at.partition, 0) for key in writers.get(at, ())]
            behind = readable(max(logs[at].from_, max(ends, default=logs[at].until)), logs[at].until)
            try:
                first = self.clusters.target.standing.first_record(at, behind)
            except ReplicationError as error:
                log.warning("%s: what lies behind our last record was not read: %s", at, error)
                continue
            if first is not None:
                found |= dict.fromkeys(writers[at], first)
        return found


def _ours(key: PartitionKey, view: LedgerView) -> list[TopicPartition]:
    """The target partitions that have records of the key."""
    return [TopicPartition(key.target_topic, number) for number in view.positions[key].ends(key.source.partition)]


def _writers(view: LedgerView) -> dict[TopicPartition, list[PartitionKey]]:
    writers: dict[TopicPartition, list[PartitionKey]] = {}
    for key in view.positions:
        for at in _ours(key, view):
            writers.setdefault(at, []).append(key)
    return writers
