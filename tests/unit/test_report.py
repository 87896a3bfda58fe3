"""The arithmetic of a run: what became of each offset of each range adds up, and failures are named with their remedy."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_replication.documents import listed
from kafka_replication.ledger.entries import Gap, Handled, Position, Receipt, Verified
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.choices import EngineChoice, Turn, chosen
from kafka_replication.model.offsets import Coverage, OffsetRange
from kafka_replication.model.trouble import Trouble
from kafka_replication.planning.plan import PartitionPlan, Plan, State
from kafka_replication.reporting.arithmetic import Copied, Evidence, NotDone, account
from kafka_replication.reporting.run import RunReport
from kafka_replication.reporting.table import EngineTurnRow
from kafka_replication.verification.verify import VerifyResult
from kafka_replication.watermarks.values import RangeOutcome
from tests.support.reports import IDS, KEY, copied_in, gap, receipt

# --- sums of receipts -----------------------------------------------------------------------------------------------------------------------


def test_receipts_within_a_range_are_summed_and_others_are_not() -> None:
    receipts = [receipt(0, 10, 9), receipt(10, 14, 4), receipt(14, 20, 0), receipt(20, 30, 7)]
    assert copied_in(OffsetRange(10, 20), receipts) == Copied(records=4, written=4, span=10, bytes=40)
    assert copied_in(OffsetRange(0, 30), []) == Copied()


def test_a_receipt_over_the_edge_counts_with_what_it_shares() -> None:
    """An older run that is looked at again after a newer one copied further: nothing of it is missing."""
    receipts = [receipt(0, 15, 15), receipt(15, 25, 2)]
    assert copied_in(OffsetRange(0, 20), receipts) == Copied(records=17, written=17, span=20, bytes=170)


def test_records_left_out_on_purpose_are_counted_and_are_not_invisible() -> None:
    receipts = [receipt(0, 10, 4, filtered=3, quarantined=1), receipt(10, 20, 5, skipped=2, filtered=1)]
    whole = copied_in(OffsetRange(0, 20), receipts)
    assert whole == Copied(records=9, written=9, span=20, bytes=90, filtered=4, quarantined=1, skipped=2)
    assert whole.not_visible == 4


def test_no_more_records_are_counted_than_the_shared_offsets_hold() -> None:
    """The first 4 offsets of a chunk whose 10 offsets held 2 copied, 3 filtered and 4 skipped records."""
    whole = copied_in(OffsetRange(0, 4), [receipt(0, 10, 2, filtered=3, skipped=4)])
    assert (whole.records, whole.filtered, whole.skipped, whole.not_visible) == (2, 2, 0, 0)


# --- a run's report, from what the ledger holds -----------------------------------------------------------------------------------------------


def report(
    receipts: list[Receipt],
    *,
    copy: tuple[int, int] | None = None,
    verify: tuple[tuple[int, int], ...] = (),
    verified: tuple[tuple[int, int], ...] = (),
    copy_error: str | None = None,
    verify_error: str | None = None,
    level: str = "digest",
    watermark: int | None = None,
    gaps: tuple[Gap, ...] = (),
    not_advanced: Trouble | None = None,
    handled: tuple[Handled, ...] = (),
    turns: tuple[Turn, ...] = (),
    **plan: Any,
) -> RunReport:
    """What a report says of one partition, given its plan and the ledger after the run."""
    wanted = OffsetRange(*copy) if copy else None
    covered = Coverage.of(each.range for each in receipts)
    position = Position(generation=1, ids=IDS, start=0, next_offset=covered.contiguous_end(0), coverage=covered)
    copied = (
        RangeOutcome(run_id="run-2", key=KEY, range=wanted, error=copy_error, remedy="do this", seconds=2.0)
        if wanted
        else None
    )
    checked = Coverage.of(OffsetRange(*each) for each in verified)
    pending = Coverage.of(OffsetRange(*each) for each in verify)
    row = PartitionPlan(
        key=KEY,
        state=State.BEHIND,
        ids=IDS,
        generation=1,
        start=0,
        position=0,
        source_end=100,
        watermark=None,
        copy=wanted,
        verify=pending,
    )
    failed = (
        {KEY: VerifyResult(key=KEY, verified=Coverage(), error=verify_error, remedy="do that")} if verify_error else {}
    )
    evidence = Evidence(
        run_id="run-2",
        level=level,
        plan=Plan("orders-dr", (replace(row, **plan),)),
        view=LedgerView(
            {KEY: position},
            {KEY: Verified(generation=1, coverage=checked, level=level, run_id="run-2", time="time")},
            {KEY: gaps},
            handled={KEY: handled},
        ),
        watermarks={} if watermark is None else {KEY: watermark},
        receipts={KEY: receipts},
        outcomes={(KEY, wanted): copied} if wanted and copied else {},
        not_verified=failed,
        not_advanced={KEY: not_advanced} if not_advanced else {},
        turns={KEY: turns},
    )
    return RunReport(replication="orders-dr", run_id="run-2", ranges=account(evidence), gaps=listed({KEY: gaps}))


def begins(choice: EngineChoice) -> dict[str, Any]:
    return {"engine": choice.engine, "engine_why": choice.why}


def test_the_reason_for_an_engine_is_told_where_this_run_copied() -> None:
    (line,) = report([receipt(0, 100, 100)], copy=(0, 100), verified=((0, 100),), **begins(chosen("auto", 100))).ranges
    assert line.begun == chosen("auto", 100) and line.engine_why == "it has fewer than 5,000 offsets"
    (line,) = report([], copy=(0, 100), copy_error="away", **begins(chosen("auto", 100))).ranges
    assert line.begun is None


def test_the_turns_of_engines_are_told_unless_they_are_the_plan() -> None:
    begun = Turn(engine="record/1", range=OffsetRange(0, 100), why="kio is not installed")
    later = Turn(engine="batch/1", range=OffsetRange(60, 80), why="its timestamp is 0")
    for copied in ([receipt(0, 100, 100)], []):
        (line,) = report(copied, copy=(0, 100), turns=(begun, later), **begins(chosen("batch", 100))).ranges
        assert line.turns == (EngineTurnRow.of(begun), EngineTurnRow.of(later))
        (line,) = report(copied, copy=(0, 100), turns=(begun, later), **begins(chosen("record", 100))).ranges
        assert line.turns == (EngineTurnRow.of(later),)
    told = NotDone(turns=((KEY, (begun, later)),))
    assert NotDone.from_json(told.as_json()) == told


def test_offsets_given_up_are_lost_and_neither_missing_nor_not_visible() -> None:
    others = gap("retention", 200, 220), gap("retention", 0, 100, generation=7)
    made = report([receipt(0, 60, 50)], copy=(0, 100), verified=((0, 60),), gaps=(gap("retention", 60, 90), *others))
    line = made.ranges[0]
    assert (line.copied, line.not_visible, line.lost, line.missing) == (50, 10, 30, 10)
    assert len(made.gaps) == 3 and "LOST" in made.table()


def test_a_proof_given_up_is_no_equal_digest() -> None:
    made = report(
        [receipt(0, 100, 100)], copy=(0, 100), verified=((60, 100),), gaps=(gap("unverifiable", 0, 60),), watermark=100
    )
    line = made.ranges[0]
    assert (line.error, line.digest_ok, line.copied, line.lost, line.missing) == (None, None, 100, 0, 0)


def retried(*offsets: int) -> Handled:
    return Handled(
        generation=1,
        state="retried",
        quarantined=Coverage.of(OffsetRange(offset, offset + 1) for offset in offsets),
        skipped=Coverage(),
        ids=IDS,
        by="ann",
        reason="",
        run_id="run-2",
        time="time",
    )


def test_retried_records_are_copied_and_no_longer_quarantined() -> None:
    made = report([receipt(0, 100, 90, quarantined=2)], copy=(0, 100), verified=((0, 100),), handled=(retried(7),))
    line = made.ranges[0]
    assert (line.copied, line.copied_before, line.quarantined, line.not_visible) == (90, 1, 1, 8)


@pytest.mark.parametrize(
    ("receipts", "plan"),
    [
        ([], {}),  # the receipt of the chunk has expired
        ([receipt(0, 100, 98, quarantined=2)], {"state": State.TARGET_RECREATED}),  # nothing is there any more
        ([receipt(0, 200, 198, quarantined=2)], {}),  # a later run copied further: offsets are shared out as they fit
    ],
)
def test_retried_records_count_only_where_receipts_count(receipts: list[Receipt], plan: dict[str, Any]) -> None:
    line = report(receipts, copy=(0, 100), handled=(retried(7, 8),), **plan).ranges[0]
    terms = (line.copied, line.copied_before, line.filtered, line.quarantined, line.skipped, line.not_visible)
    assert sum(terms) + line.missing + line.lost == line.range.span, line
    assert min(terms) >= 0


HERE, BEFORE = "run-2", "run-1"
ARITHMETIC: dict[str, tuple[list[Receipt], tuple[int, int, int, int]]] = {
    # receipts over [0, 100): copied, copied_before, not_visible, missing
    "nothing copied": ([], (0, 0, 0, 100)),
    "every offset a record": ([receipt(0, 100, 100)], (100, 0, 0, 0)),
    "markers and compaction leave holes": ([receipt(0, 40, 30), receipt(40, 100, 55)], (85, 0, 15, 0)),
    "no visible record at all": ([receipt(0, 100, 0)], (0, 0, 100, 0)),
    "the copy ended in the middle": ([receipt(0, 40, 30)], (30, 0, 10, 60)),
    "an earlier run died after its commit": ([receipt(0, 40, 30, BEFORE), receipt(40, 100, 55, HERE)], (55, 30, 15, 0)),
    "an earlier run had done it all": ([receipt(0, 100, 99, BEFORE)], (0, 99, 1, 0)),
    "other generations count for nothing": (
        [receipt(0, 40, 30), receipt(40, 100, 55, HERE, generation=2)],
        (30, 0, 10, 60),
    ),
    "other ranges count for nothing": ([receipt(0, 100, 90), receipt(100, 120, 20)], (90, 0, 10, 0)),
}


@pytest.mark.parametrize(("receipts", "numbers"), ARITHMETIC.values(), ids=ARITHMETIC)
def test_a_range_adds_up(receipts: list[Receipt], numbers: tuple[int, int, int, int]) -> None:
    (line,) = report(receipts, copy=(0, 100)).ranges
    assert (line.copied, line.copied_before, line.not_visible, line.missing) == numbers
    assert line.range.span == sum(numbers)
    assert line.bytes == 10 * line.copied


@st.composite
def ledgers(draw: st.DrawFn) -> list[Receipt]:
    cuts = sorted(draw(st.sets(st.integers(0, 100), max_size=8)))
    chunks = [(a, b) for a, b in itertools.pairwise(cuts) if draw(st.booleans())]
    return [_drawn(draw, a, b) for a, b in chunks]


def _drawn(draw: st.DrawFn, from_: int, until: int) -> Receipt:
    """A receipt whose counts fit its span: cut it at four places, what follows the last one was not visible."""
    cuts = sorted(draw(st.lists(st.integers(0, until - from_), min_size=4, max_size=4)))
    count, filtered, quarantined, skipped = (after - before for before, after in itertools.pairwise([0, *cuts]))
    more = {"filtered": filtered, "quarantined": quarantined, "skipped": skipped}
    return receipt(from_, until, count, draw(st.sampled_from([HERE, BEFORE])), **more)


@given(ledgers())
def test_a_span_is_what_was_copied_left_out_not_visible_and_missing(receipts: list[Receipt]) -> None:
    (line,) = report(receipts, copy=(0, 100)).ranges
    left_out = line.filtered + line.quarantined + line.skipped
    assert line.range.span == line.copied + line.copied_before + left_out + line.not_visible + line.missing
    assert left_out == sum(each.filtered + each.quarantined + each.skipped for each in receipts)
    assert line.missing == len(
        set(range(100)) - {offset for each in receipts for offset in range(each.range.from_, each.range.until)}
    )
    assert line.copied + line.copied_before == sum(each.count for each in receipts)
    assert min(line.copied, line.copied_before, line.not_visible, line.missing) >= 0


def test_a_range_that_is_only_verified_has_its_own_line() -> None:
    made = report(
        [receipt(0, 40, 30, BEFORE), receipt(40, 100, 60)],
        copy=(40, 100),
        verify=((0, 40),),
        verified=((0, 100),),
        watermark=100,
    )
    assert [
        (str(each.range), each.copied, each.copied_before, each.digest_ok, each.watermark) for each in made.ranges
    ] == [
        ("[0, 40)", 0, 30, True, 100),
        ("[40, 100)", 60, 0, True, 100),
    ]
    assert made.outcome == "done"


WHOLE = [receipt(0, 100, 90)]
JUDGED: dict[str, tuple[dict[str, Any], bool | None, str | None, str]] = {
    "copied and equal": ({"verified": ((0, 100),)}, True, None, ""),
    "counted only": ({"verified": ((0, 100),), "level": "count"}, None, None, ""),
    "copied, never verified": ({}, None, "orders-3 [0, 100) is not verified", "run again"),
    "verified in part": ({"verified": ((0, 99),)}, None, "orders-3 [0, 100) is not verified", "run again"),
    "the copy failed": ({"copy_error": "no"}, None, "no", "do this"),
    "the copy differs": ({"verify_error": "differs"}, False, "differs", "do that"),
    "verified after all": ({"verified": ((0, 100),), "verify_error": "another range differs"}, True, None, ""),
    "not stored": (
        {"verified": ((0, 100),), "watermark": 40},
        None,
        "orders-3 is verified up to 100, but the stored watermark is 40",
        "run again, which stores it; the log of the task replicate has the reason",
    ),
    "refused": (
        {"state": State.OVERRUN, "what": "gone", "remedy": "restore", "position": 40, "copy": None},
        None,
        "gone",
        "restore",
    ),
}


@pytest.mark.parametrize(("given_", "digest_ok", "error", "remedy"), JUDGED.values(), ids=JUDGED)
def test_what_went_wrong_is_said_and_unverified_offsets_are_never_done(
    given_: dict[str, Any], digest_ok: bool | None, error: str | None, remedy: str
) -> None:
    made = report(WHOLE, **{"copy": (0, 100), "watermark": 100, **given_})
    (line,) = made.ranges
    assert (line.digest_ok, line.error, line.remedy) == (digest_ok, error, remedy)
    assert made.outcome == ("failed" if error else "done")
    assert made.failed == ((line,) if error else ())


def test_a_refused_partition_reports_what_it_did_not_copy() -> None:
    (line,) = report([], state=State.OVERRUN, what="gone", remedy="restore", position=40).ranges
    assert (str(line.range), line.missing) == ("[40, 100)", 60)
    (line,) = report([], state=State.TRUNCATED, what="gone", remedy="look", position=40, source_end=37).ranges
    assert (str(line.range), line.missing) == ("[40, 40)", 0)


def test_a_watermark_that_was_not_moved_is_named_with_its_reason() -> None:
    stale = Trouble("error", "", "orders-3: run-7 stored 60", "run again")
    to_copy: list[tuple[int, int] | None] = [(0, 100), None]
    for copy in to_copy:
        made = report([receipt(0, 100, 100)], verified=((0, 100),), watermark=60, not_advanced=stale, copy=copy)
        assert [(line.key, line.error, line.remedy) for line in made.failed] == [
            (KEY, f"the watermark was not moved: {stale.what}", stale.remedy)
        ]
    assert report([receipt(0, 100, 100)], verified=((0, 100),), watermark=100, not_advanced=stale).ranges == ()


def test_a_partition_with_nothing_to_do_has_no_line() -> None:
    made = report([])
    assert (made.ranges, made.outcome) == ((), "nothing_to_do")
