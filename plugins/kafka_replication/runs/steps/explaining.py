"""Counts what is lost and what is doubled in target topics to which several source partitions write without
transactions. Nobody of this replication writes to the topic meanwhile.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

from kafka_replication.kafka import clients, offsets, topics
from kafka_replication.kafka.both_sides import check_all_shown, target_log
from kafka_replication.kafka.topic_sides import topic_sides
from kafka_replication.ledger.entries import ONE_WRITER, Handled, Receipt
from kafka_replication.ledger.placement import Explained, offsets_by_partition
from kafka_replication.ledger.receipts import committed, of_earlier
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.delivery import EXACTLY_ONCE, weakest_delivery
from kafka_replication.model.errors import ForeignWriter, Refused, ReplicationError
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import Coverage, OffsetRange, TopicPartition
from kafka_replication.runs.run import Run
from kafka_replication.verification.delivery import too_many
from kafka_replication.verification.explaining import At, Explanation, Topic, Writer, explain, overlapping
from kafka_replication.verification.verify import Judged, VerifyResult, removed_early

log = logging.getLogger(__name__)


def explain_topics(run: Run, keys: Sequence[PartitionKey], patience: float = math.inf) -> list[VerifyResult]:
    """What was found out about the source partitions that write to the target topics of these ``keys``. If a topic
    cannot be explained, those have an error of which something is not verified without that, or the first one; never
    raises it. ``patience`` bounds the retries, in seconds.
    """
    if run.replication.placing.keeps:  # each reads its own target partition back
        return []
    view, results = run.view(), list[VerifyResult]()
    for name in sorted({key.target_topic for key in keys}):
        writers = writers_to(view, [key for key in keys if key.target_topic == name])
        if not any(view.positions[key].sent_from is not None for key in writers):
            continue
        try:
            explaining = partial(_explained, run, name, writers)
            results += run.retry(f"explaining {name}", explaining, patience)
        except ReplicationError as error:
            log.warning("%s: what lies on the target %s was not explained: %s", run.replication.name, name, error)
            results += _not_explained(run, [key for key in keys if key in writers], error)
    return results


def writers_to(view: LedgerView, keys: Sequence[PartitionKey]) -> list[PartitionKey]:
    """All that write to the target topic of these keys. Those of which a topic was re-created since, with fewer
    partitions, do not.
    """
    topics_ = {(key.target_topic, view.positions[key].ids) for key in keys if key in view.positions}
    return sorted(key for key, position in view.positions.items() if (key.target_topic, position.ids) in topics_)


def _explained(run: Run, name: str, writers: Sequence[PartitionKey]) -> list[VerifyResult]:
    return _Explaining(run, name, writers).results()


def _not_explained(run: Run, keys: Sequence[PartitionKey], error: ReplicationError) -> list[VerifyResult]:
    """Those that wait for it. An error that does not pass is told by the first one, if nobody waits."""
    view = run.view()
    waiting = [key for key in keys if view.pending(key)] or ([] if error.retriable else keys[:1])
    return [_failed(VerifyResult(key=key, verified=Coverage()), error) for key in waiting]


def _failed(result: VerifyResult, error: ReplicationError) -> VerifyResult:
    return replace(result, error=error.what, remedy=error.remedy, retriable=error.retriable, lasts=True)


class _Explaining:
    """One target topic, and the source partitions that write to it."""

    def __init__(self, run: Run, topic: str, keys: Sequence[PartitionKey]) -> None:
        self._run, self._name, self._keys = run, topic, keys
        self._logs = self._look(run.view())  # before the ledger, which then has an entry for all that lies below
        self._view = run.view()
        since = {key: self._view.unexplained_from(key) for key in keys}
        self._receipts = run.clusters.ledger.receipts(since)

    def _look(self, view: LedgerView) -> Mapping[int, OffsetRange]:
        """What can be read of each partition, once it has what it should have or does not grow any more."""
        admin, expected = clients.shared_admin(self._run.clusters.target), dict[int, int]()
        state = topics.states(admin, [self._name]).get(self._name)
        if state is None:
            raise Refused(f"{self._name} on the target is gone", "plan again: the plan says what to do")
        for number, end in chain.from_iterable(
            view.positions[key].ends(key.source.partition).items() for key in self._keys
        ):
            expected[number] = max(end, expected.get(number, 0))
        places = [TopicPartition(self._name, number) for number in sorted(state.partitions)]
        starts, ends = offsets.log_starts(admin, places), offsets.last_stable(admin, places)
        return {
            at.partition: OffsetRange(min(starts[at], end), end)
            if end >= expected.get(at.partition, 0)
            else target_log(admin, at, expected[at.partition])
            for at, end in ends.items()
        }

    def results(self) -> list[VerifyResult]:
        """Raises ForeignWriter for records of others, and VerificationFailed if the source cannot show what is
        missing.
        """
        run, topic = self._run, self._topic()
        if run.replication.delivery == EXACTLY_ONCE and all(map(self._leaves_nothing, topic.writers)):
            return []
        stall, pipeline = run.replication.copying.stall_timeout, run.pipeline
        source, target = run.clusters.source, run.clusters.target
        with topic_sides(run.replication.name, self._name, source, target, stall, pipeline) as sides:
            explanation = explain(topic, sides)
        if explanation.lost:
            ends = {number: log.until for number, log in self._logs.items()}
            check_all_shown(clients.shared_admin(target), self._name, ends)
        if explanation.foreign:
            first = explanation.foreign[0]
            raise ForeignWriter(
                f"{self._name} on the target holds {len(explanation.foreign)} records that no source has, the first"
                f" at offset {first.offset} of partition {first.partition}",
                ONE_WRITER,
            )
        return self._judged(topic, explanation)

    def _leaves_nothing(self, writer: Writer) -> bool:
        """Whether all that it sent without a transaction is explained, and nobody sends anything so any more. Until
        then nothing else looks for records of others (`runs.comparing`).
        """
        known = self._view.explained(writer.key, self._view.positions[writer.key].generation)
        settled = writer.sent_from is None or (known is not None and known.settled)
        return settled and all(receipt.after is None for receipt in writer.receipts)

    def _topic(self) -> Topic:
        bare = tuple(map(self._bare, self._keys))
        lowest = Topic(writers=bare, logs=self._logs).begin
        receipts = {writer.key: self._above(writer.key, lowest) for writer in bare}
        doubtful = overlapping([one for key in self._keys for one in receipts[key] if self._is_there(key, one)])
        writers = tuple(self._with_receipts(writer, receipts[writer.key], doubtful) for writer in bare)
        return Topic(writers=writers, logs=self._logs, known=self._known(), floor=self._floor(writers))

    def _bare(self, key: PartitionKey) -> Writer:
        position = self._view.positions[key]
        known = self._view.explained(key, position.generation)
        return Writer(
            key=key,
            next_offset=position.next_offset,
            sent_from=position.sent_from,
            explained=known.ends if known else None,
        )

    def _above(self, key: PartitionKey, begin: Callable[[int], int]) -> tuple[Receipt, ...]:
        """The receipts of chunks that reach beyond what is explained of all source partitions."""
        position = self._view.positions[key]
        return tuple(
            receipt
            for receipt in committed(self._receipts.of(key, position.generation), position.coverage)
            if any(part.until > begin(part.partition) for part in receipt.parts)
        )

    def _is_there(self, key: PartitionKey, receipt: Receipt) -> bool:
        """Whether the chunk was found where its receipt says."""
        return not (receipt.lost_in_delivery or self._view.pending(key).within(receipt.range))

    def _with_receipts(self, writer: Writer, receipts: tuple[Receipt, ...], doubtful: Sequence[Receipt]) -> Writer:
        compared = tuple(
            receipt
            for receipt in receipts
            if receipt.after is not None and (receipt in doubtful or not self._is_there(writer.key, receipt))
        )
        for part in (part for receipt in compared for part in receipt.parts):
            if part.partition in self._logs and part.first < self._logs[part.partition].from_:
                raise removed_early(
                    writer.key,
                    TopicPartition(self._name, part.partition),
                    self._logs[part.partition].from_,
                    f"from {part.first} on",
                    "raise retention.ms on the target; accept these offsets with kafka-replication approve-gap",
                )
        return replace(writer, receipts=receipts, compared=compared)

    def _known(self) -> dict[int, Coverage]:
        """Target offsets of chunks of earlier generations, and of records that were retried."""
        entries, view = list[Receipt | Handled](), self._view
        for key in self._keys:
            entries += of_earlier(self._receipts.all(key), view.positions[key])
            entries += view.handled_in(key, view.positions[key].generation, "retried")
        return offsets_by_partition(chain.from_iterable(entry.parts for entry in entries))

    def _floor(self, writers: Sequence[Writer]) -> dict[int, int]:
        """Where receipts may have expired, only what follows the first one can be told."""
        if not any(self._receipts.incomplete(key) for key in self._keys):
            return {}
        message = "%s: receipts have expired: what lies on the target %s before the first one is not explained"
        log.warning(message, self._run.replication.name, self._name)
        floor = {number: log_.until for number, log_ in self._logs.items()}
        for part in (part for writer in writers for receipt in writer.receipts for part in receipt.parts):
            floor[part.partition] = min(part.first, floor.get(part.partition, part.first))
        return floor

    def _judged(self, topic: Topic, explanation: Explanation) -> list[VerifyResult]:
        senders = [writer for writer in topic.writers if writer.sent_from is not None]
        results = {writer.key: self._result(writer, explanation) for writer in senders}
        done = not any(result.error for result in results.values())
        ends = tuple(self._logs[number].until if number in self._logs else 0 for number in range(max(self._logs) + 1))
        settled = all(self._view.positions[key].delivery == EXACTLY_ONCE for key in self._keys)
        found = list[VerifyResult]()
        for key, result in results.items():
            if result.error:
                found.append(result)
                continue
            known = self._view.explained(key, self._view.positions[key].generation)
            if result.verified or result.judged or known is None or known.ends != ends:
                receipts_from = self._receipts_from(key, topic) if done else self._view.unexplained_from(key)
                found.append(replace(result, explained=Explained(ends, receipts_from, settled)))
        return found

    def _receipts_from(self, key: PartitionKey, topic: Topic) -> int:
        """The offset of the first receipt that is about records which were not explained before; where reading ended if
        none is. Those that are explained now are needed once more if not all source partitions get to know it.
        """
        above = (
            stored.offset
            for stored in self._receipts.stored[key]
            if any(part.until > topic.begin(part.partition) for part in stored.receipt.parts)
        )
        return min(above, default=self._receipts.ends[key.ledger_partition])

    def _result(self, writer: Writer, explanation: Explanation) -> VerifyResult:
        """What became of the records of one source partition. Copies are counted at once, also if it has copied no new
        chunk, whose receipt could say so, too: later, another source partition may have a record of the same content.
        """
        own = [receipt for receipt in writer.receipts if _is_new(receipt, writer)]
        lost, copies = explanation.lost_of(writer, own), explanation.copies_of(writer)
        if copies and not own:
            message = "%s: %s copied no chunk, and %d further copies of its records lie on the target"
            log.warning(message, self._run.replication.name, writer.key.source, len(copies))
        doubled = dict.fromkeys((receipt.range for receipt in own), 0)
        for copy in copies if own else ():
            chunk = next((range_ for range_ in doubled if copy.offset in range_), next(iter(doubled)))
            doubled[chunk] += 1
        pending = self._view.pending(writer.key)
        new = [one for one in own if one in writer.compared and pending.contains(one.range)]
        result = VerifyResult(
            key=writer.key,
            verified=Coverage.of(receipt.range for receipt in new),
            records=sum(receipt.count for receipt in new),
            bytes=sum(receipt.bytes for receipt in new),
            judged=tuple(
                Judged(range=receipt.range, lost=lost[receipt.range], duplicates=doubled[receipt.range])
                for receipt in own
                if (lost[receipt.range], doubled[receipt.range]) != (receipt.lost_in_delivery, receipt.duplicates)
            ),
            lost=lost.total(),
            duplicates=len(copies),
            delivery=weakest_delivery(receipt.delivery for receipt in own),
        )
        if problem := too_many(writer.key, own, lost, self._run.replication.accept_loss):
            return _failed(replace(result, verified=Coverage(), lost=0, duplicates=0), problem)
        return result


def _is_new(receipt: Receipt, writer: Writer) -> bool:
    """Whether the chunk reaches beyond what was explained of its source partition."""
    return any(writer.is_new(At(part.partition, part.until - 1)) for part in receipt.parts)
