"""Takes down the result of each partition as it comes: in the ledger, the watermark and the store.

The step that moves the stored watermarks to the verified ends in the ledger.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, replace
from functools import partial

from kafka_replication.copying.engine import CopyResult
from kafka_replication.ledger.account import Change
from kafka_replication.ledger.entries import Position, Verified
from kafka_replication.ledger.port import TransactionPort
from kafka_replication.ledger.view import LedgerView
from kafka_replication.ledger.writing import add
from kafka_replication.model.choices import EXACTLY_ONCE, weakest_delivery
from kafka_replication.model.errors import BadInput, Fenced, Refused, ReplicationError
from kafka_replication.model.offsets import PartitionKey, verified_id
from kafka_replication.model.times import now
from kafka_replication.planning.plan import PartitionPlan, Plan
from kafka_replication.runs.run import LeasedRun
from kafka_replication.runtime import failpoints
from kafka_replication.runtime.events import Event, log_event
from kafka_replication.spark.jobs import JobEnd, RangeResult, RangeTask
from kafka_replication.verification.verify import VerifyResult
from kafka_replication.watermarks.values import RangeOutcome, Watermark, WatermarkChange

log = logging.getLogger(__name__)


def advance(run: LeasedRun, keys: Collection[PartitionKey], view: LedgerView | None = None) -> dict[PartitionKey, int]:
    """Move each stored watermark to the end of the contiguous verified coverage in ``view``; None: the ledger now.

    Raises StaleWriter or Refused, which names the watermarks that cannot be moved, after all others were moved.
    """
    view = run.retry("reading the ledger", run.view) if view is None else view
    moved, refused = advance_each(run, keys, view)
    if refused:
        first = next(iter(refused.values()))
        raise type(first)("; ".join(error.what for error in refused.values()), first.remedy)
    return moved


def advance_each(
    run: LeasedRun, keys: Collection[PartitionKey], view: LedgerView
) -> tuple[dict[PartitionKey, int], dict[PartitionKey, Refused]]:
    """As `advance`, with the reason for each watermark that cannot be moved."""
    run.check()
    stored = run.store.watermarks(run.replication.name)
    results = run.store.advance_many(
        [
            change_to(key, view.positions[key], view[key].watermark(), stored.get(key), run.run_id)
            for key in sorted(view.positions.keys() & set(keys))
        ]
    )
    failpoints.reached("P5")
    return (
        {key: mark.offset for key, mark in results.items() if isinstance(mark, Watermark)},
        {key: mark for key, mark in results.items() if isinstance(mark, Refused)},
    )


def change_to(
    key: PartitionKey, position: Position, offset: int, before: Watermark | None, run_id: str
) -> WatermarkChange:
    """Move the watermark ``before`` to ``offset``, with the ids and the generation of the ledger's position."""
    return WatermarkChange(
        key=key,
        generation=position.generation,
        source_topic_id=position.ids.source_topic,
        target_topic_id=position.ids.target_topic,
        offset=offset,
        expected_version=before.version if before else None,
        run_id=run_id,
    )


class Bookkeeper:
    """The results of a run's tasks. ``answers`` has the last result of each partition in the current job,
    ``retries`` counts sessions beyond the first one of each result.
    """

    def __init__(self, run: LeasedRun, plan: Plan) -> None:
        self.answers: dict[PartitionKey, RangeResult] = {}
        self.retries = 0
        self._run = run
        self._planned = {planned.key: planned for planned in plan.to_copy}
        self._copied: dict[PartitionKey, CopyResult] = {}
        self._read_back: dict[PartitionKey, VerifyResult] = {}
        self._generations: dict[PartitionKey, int] = {}
        self._stack = ExitStack()
        self._writer: TransactionPort | None = None

    @property
    def copied(self) -> Sequence[CopyResult]:
        """One result for each planned range, all its slices added."""
        return [self._copied[key] for key in self._planned if key in self._copied]

    @property
    def read_back(self) -> Sequence[VerifyResult]:
        return list(self._read_back.values())

    @property
    def failed(self) -> set[PartitionKey]:
        """The partitions whose last result has an error."""
        not_copied = {key for key, result in self._copied.items() if result.error}
        return not_copied | {key for key, result in self._read_back.items() if result.error}

    @contextmanager
    def open(self, tasks: Sequence[RangeTask]) -> Iterator[None]:
        """One job: its results are entered in the body."""
        self.answers = {}
        self._generations = {task.key: task.read_back.generation for task in tasks}
        with self._stack:
            try:
                yield
            finally:
                self._writer = None

    def enter(self, results: Sequence[RangeResult]) -> None:
        """Take down some results: write to the ledger what is verified, then move these watermarks.

        Raises Busy if the lease was lost.
        """
        self._run.check()
        for result in results:
            self.answers[result.key] = result
            if result.copied is not None:
                earlier = self._copied.get(result.key)
                self._copied[result.key] = result.copied.joined_to(earlier) if earlier else result.copied
                self.retries += max(0, result.copied.sessions - 1)
                _say_throttled(result.copied)
                _say_failed(result.copied)
            if result.read_back is not None:
                before = self._read_back.get(result.key)
                self._read_back[result.key] = result.read_back.joined_to(before) if before else result.read_back
        self._record([result.key for result in results if result.copied is not None])
        read = [result.read_back for result in results if result.read_back]
        verified = [result for result in read if result.verified or result.judged]
        if verified:
            doing = "writing what is verified"
            write = partial(self._write_verified, verified)
            view = self._run.retry(doing, lambda: self._run.again_if_fenced(doing, write))
            failpoints.reached("P4")
            try:
                advance(self._run, [result.key for result in verified], view)
            except Refused as error:  # the run's last advance raises it; until then the others go on
                log.warning("%s: a watermark was not moved: %s", self._run.replication.name, error)

    def judge(self, view: LedgerView, end: JobEnd) -> None:
        """The last word on every planned range: one that the ledger does not cover has failed, whatever Spark
        reported.
        """
        for key, planned in self._planned.items():
            self._copied[key] = _judged(planned, view, self._copied.get(key), end)
        self._record(list(self._planned))

    def _record(self, keys: Sequence[PartitionKey]) -> None:
        outcomes = [
            RangeOutcome(
                run_id=self._run.run_id,
                key=key,
                range=planned.copy,
                error=self._copied[key].error,
                remedy=self._copied[key].remedy or None,
                seconds=self._copied[key].seconds,
                bytes=self._copied[key].bytes,
            )
            for key in keys
            if (planned := self._planned.get(key)) and planned.copy
        ]
        try:
            self._run.store.record_outcomes(outcomes)
        except BadInput:
            # Another store has replaced ours. If another run has the lease there, report that instead.
            self._run.check()
            raise

    def _write_verified(self, results: Sequence[VerifyResult]) -> LedgerView:
        """Add to the entries read after fencing, so that a run that lost its lease meanwhile removes nothing. Returns
        the ledger with what was written.
        """
        run = self._run
        run.check()
        try:
            if (writer := self._writer) is None:
                name = run.replication.name
                writer = run.clusters.target.writer(verified_id(name), f"{name}: writing what is verified")
                self._stack.enter_context(closing(writer))
                writer.fence()
                self._writer = writer
            view = run.view()
            judged = self._judged(view, results)
            entries = {
                result.key: self._entry(view, result)
                for result in results
                if result.verified and view.position(result.key, self._generations[result.key])
            }
            writer.begin()
            # The receipts first: `verified` adds them up.
            add(run.clusters.ledger, writer, [*judged, *(Change(key=key, write=(e,)) for key, e in entries.items())])
            self._check_newest(view, [result.key for result in results])
            writer.commit()
            return replace(view, verified={**view.verified, **entries})
        except ReplicationError:
            self._stack.close()
            self._writer = None
            raise

    def _check_newest(self, view: LedgerView, keys: Sequence[PartitionKey]) -> None:
        """Raises Fenced if an entry is not the one in this view any more. With transactions, brokers see to that."""
        if self._run.replication.delivery == EXACTLY_ONCE:
            return
        newest = self._run.view().verified
        if changed := [key for key in keys if newest.get(key) != view.verified.get(key)]:
            raise Fenced(
                f"{changed[0].source}: another run has written what is verified since this one read it",
                "run again when the other run has ended",
            )

    def _entry(self, view: LedgerView, result: VerifyResult) -> Verified:
        """The entry about what is verified with this result."""
        run, key, generation = self._run, result.key, self._generations[result.key]
        account, level = view.of(key, generation), run.replication.verify.level
        entry = account.verified_with(result.verified, level=level, run_id=run.run_id, time=now())
        entry = replace(entry, receipts_from=result.receipts_from, judged_until=result.judged_until)
        if not result.verified.subtract(
            account.verified.coverage
        ):  # written before, by an attempt that did not hear of it
            return entry
        return replace(
            entry,
            delivery=weakest_delivery([entry.delivery, result.delivery]),
            lost_in_delivery=entry.lost_in_delivery + result.lost,
            duplicates=entry.duplicates + result.duplicates,
            superseded=entry.superseded + result.superseded,
        )

    def _judged(self, view: LedgerView, results: Sequence[VerifyResult]) -> list[Change]:
        """Changes of the receipts of which verification found out something, with what it found out."""
        found = {result.key: {judged.range: judged for judged in result.judged} for result in results if result.judged}
        known = {key for key in found if view.position(key, self._generations[key])}
        if not known:
            return []
        wanted = {key: view[key].receipts_from() for key in known}
        receipts = self._run.clusters.ledger.receipts(wanted)
        return [
            Change(key=key, write=(judged.noted(receipt),))
            for key in sorted(known)
            for receipt in receipts.of(key, self._generations[key])
            if (judged := found[key].get(receipt.range))
        ]


def _say_throttled(copied: CopyResult) -> None:
    if copied.throttled >= 1:
        message = (
            "%s: quotas or a target that was not ready made the copy wait for %.0f of %.0f s;"
            " ask for higher quotas, or find out what the target lacks"
        )
        log_event(log, logging.WARNING, Event.THROTTLED, message, copied.key.source, copied.throttled, copied.seconds)


def _say_failed(copied: CopyResult) -> None:
    """One that was fenced is repeated, or did what the newer copier left to it."""
    if (stop := copied.stop) is None or copied.fenced:
        return
    at = copied.key.source
    message = "%s %s: not copied from offset %d on (key digest %s), after %d attempts in %.1f s without a commit: %s"
    values = at, copied.range, stop.offset, stop.key_digest or "-", stop.attempts, stop.seconds, copied.error
    fields = {"topic": at.topic, "partition": at.partition, **asdict(stop)}
    log_event(log, logging.ERROR, Event.COPY_FAILED, message, *values, fields=fields)


def _judged(planned: PartitionPlan, view: LedgerView, result: CopyResult | None, end: JobEnd) -> CopyResult:
    assert planned.copy is not None
    result = replace(result or CopyResult(key=planned.key, range=planned.copy), range=planned.copy)
    position = view.position(planned.key, planned.generation)
    left = position.left_of(planned.copy) if position else (planned.copy,)
    if not left:
        return replace(result, error=None, remedy="", stop=None)
    if result.error:
        return result
    what = end.error or f"not copied: {', '.join(map(str, left))}"
    return replace(result, error=what, remedy=end.remedy or "run again", retriable=end.retriable)
