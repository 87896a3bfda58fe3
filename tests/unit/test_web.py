"""Plots and maps as drawings, numbers as plots, and the files that a page brings with it."""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from kafka_replication.documents import GapRow, place
from kafka_replication.model.offsets import OffsetRange, PartitionKey, TopicPartition
from kafka_replication.overview.rows import Row, State
from kafka_replication.watermarks.sight import CopiedRange, Facts, Lag, Sample, Span
from kafka_replication.watermarks.values import RangeOutcome
from kafka_replication.web import actions, plots
from kafka_replication.web.actions import Site, replication_of
from kafka_replication.web.pages import AT_ONCE, FOLDER, STATIC, paged
from kafka_replication.web.plots import BUCKETS, PERIODS, Plot, RangeMap, first_shown, judged, points
from tests.support.status_rows import status_row

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
HTMX = "d6fdc75f204e6bdefa99b69bf1e6d4ac69b8a364f77929f45c13476b4000f717"  # dist/htmx.min.js of htmx.org 2.0.11
UPLOT = "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f"  # dist/uPlot.iife.min.js of uplot 1.6.32
UPLOT_STYLE = "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04"  # dist/uPlot.min.css
KEY = PartitionKey("orders-dr", TopicPartition("orders", 3), "orders")
SITE = Site("/airflow/kafka-replication", "/airflow")


def sample(ago: timedelta, records: int = 0, lag: int | None = None, span: Span = Span.MINUTE) -> Sample:
    return Sample(at=NOW - ago, span=span, lag=Lag(lag), records=records)


def seen(samples: list[Sample], period: str = "day", *, added: bool = False) -> list[float]:
    value: plots.Value = (lambda one: one.records) if added else (lambda one: one.lag.records)
    found = points(samples, value, NOW - PERIODS[period], NOW, added=added)
    return [point.value for point in found if point.value is not None]


def test_sums_are_added_and_lags_are_not() -> None:
    near = [sample(timedelta(minutes=1), 2, 5), sample(timedelta(minutes=2), 3, 9)]
    assert seen(near, added=True) == [5]
    assert seen(near) == [9]
    assert seen([sample(timedelta(days=3), 2, 5)]) == []  # before the period
    assert seen([sample(timedelta(minutes=1), 2, None)]) == []  # nobody looked


def test_a_long_sample_fills_its_time_but_its_records_count_once() -> None:
    hour = [sample(timedelta(hours=2), 7, 4, Span.HOUR)]
    assert seen(hour) == [4] * 8  # of eight minutes each
    assert seen(hour, added=True) == [7]
    day = [sample(timedelta(hours=30), 7, 4, Span.DAY)]
    assert set(seen(day)) == {4}
    assert len(seen(day)) == BUCKETS * 3 // 4  # what lies within the period


def plot(samples: list[Sample], period: str = "day", *, bars: bool = False) -> Plot:
    value: plots.Value = (lambda one: one.records) if bars else (lambda one: one.lag.records)
    since = first_shown(samples, period, NOW)
    found = points(samples, value, since, NOW, added=bars)
    return Plot(title="Lag", since=since, until=NOW, points=found, form=plots.short, bars=bars)


def test_a_plot_has_a_name_and_a_break_where_nobody_looked() -> None:
    two = [sample(timedelta(hours=hours), 1, lag) for hours, lag in ((9, 1_500), (2, 10))]
    assert plot(two).label == "Lag: now 10, highest 1.5 k"
    assert plot([]).label == "Lag: nothing measured"
    drawn = plot(two).drawn()
    assert len(drawn["at"]) == len(drawn["values"]) == len(drawn["texts"]) == BUCKETS
    assert [text for text in drawn["texts"] if text != "not known"] == ["1.5 k", "10"]
    assert drawn["values"].count(None) == BUCKETS - 2
    assert drawn["up"] == [[0.0, "0"], [1_500, "1.5 k"]]
    assert plot([]).drawn()["up"] == [[0.0, "0"]]
    assert sum(value or 0 for value in plot(two, bars=True).drawn()["values"]) == 2


@pytest.mark.parametrize(("period", "first"), [("day", "12:00"), ("month", "03 Apr"), ("year", "May 2025")])
def test_the_marks_of_the_time_axis_are_in_utc_and_nothing_lies_beyond_them(period: str, first: str) -> None:
    drawn = plot([sample(timedelta(days=days), days, days, Span.DAY) for days in range(400)], period).drawn()
    times = [at for at, _ in drawn["along"]]
    assert (times[0], times[-1]) == ((NOW - PERIODS[period]).timestamp(), NOW.timestamp())
    assert drawn["along"][0][1] == first
    assert times[0] <= min(drawn["at"]) and max(drawn["at"]) <= times[-1]


@pytest.mark.parametrize(
    ("ago", "period", "first", "marks"),
    [
        (timedelta(minutes=1), "day", timedelta(hours=1), ["11:00", "11:15", "11:30", "11:45", "12:00"]),
        (timedelta(hours=4), "day", timedelta(hours=4), ["08:00", "09:00", "10:00", "11:00", "12:00"]),
        (timedelta(hours=4), "year", timedelta(hours=4), ["08:00", "09:00", "10:00", "11:00", "12:00"]),
        (timedelta(days=2), "day", timedelta(days=1), ["12:00", "18:00", "00:00", "06:00", "12:00"]),
        (timedelta(days=2), "month", timedelta(days=2), ["02 May 12:00", "03 May 00:00", "03 May 12:00"]),
        (timedelta(days=40), "year", timedelta(days=40), ["25 Mar", "04 Apr", "14 Apr", "24 Apr", "04 May"]),
    ],
)
def test_the_time_axis_begins_with_the_first_sample(
    ago: timedelta, period: str, first: timedelta, marks: list[str]
) -> None:
    drawn = plot([sample(ago, 7, 7), sample(timedelta(minutes=1), 7, 7)], period).drawn()
    assert drawn["at"][0] == drawn["along"][0][0] == (NOW - first).timestamp()
    assert [text for _, text in drawn["along"]][: len(marks)] == marks
    assert plot([], period).since == NOW - PERIODS[period]


def outcome(from_: int, until: int, kind: str = "live", **values: Any) -> CopiedRange:
    given: dict[str, Any] = {"level": "digest", **values}
    return CopiedRange(RangeOutcome(run_id="run-1", key=KEY, range=OffsetRange(from_, until), **given), kind)


def test_a_range_says_how_it_was_verified() -> None:
    assert judged(outcome(0, 1)) == ("verified", "verified by digest")
    assert judged(outcome(0, 1, level="")) == ("copied", "copied; the run has not reported it yet")
    assert judged(outcome(0, 1, error="lost")) == ("failed", "failed: lost")


def test_the_map_has_runs_backfills_and_gaps_in_lanes_of_their_own() -> None:
    gap = GapRow(
        **place(KEY, OffsetRange(60, 80)),
        generation=1,
        kind="retention",
        reason="an outage",
        approved_by="<Ann>",
        time="2026",
        run_id="run-1",
    )
    row = status_row(gaps=(gap,), watermark=90, source_end=100)
    newest_first = [outcome(80, 90, error="no"), outcome(10, 20, "backfill"), outcome(0, 60)]
    drawn = RangeMap.of(newest_first, row)
    assert [(mark.lane, mark.from_, mark.until, mark.kind) for mark in drawn.marks] == [
        ("runs", 0, 60, "verified"),
        ("backfills", 10, 20, "verified"),
        ("runs", 80, 90, "failed"),
        ("gaps", 60, 80, "gap"),
    ]
    svg = ElementTree.fromstring(drawn.svg())
    assert (svg.attrib["data-from"], svg.attrib["data-until"]) == ("0", "100")
    assert any("given up by <Ann>" in (title.text or "") for title in svg.iter("title"))
    assert RangeMap.of([], None).marks == ()
    assert ElementTree.fromstring(RangeMap.of([], None).svg()).attrib["data-until"] == "1"


@pytest.mark.parametrize(
    ("page", "shown"), [(1, (1, 3, AT_ONCE)), (3, (3, 3, 1)), (0, (1, 3, AT_ONCE)), (9, (3, 3, 1))]
)
def test_the_nearest_page_is_shown(page: int, shown: tuple[int, int, int]) -> None:
    number, pages, found = paged(range(2 * AT_ONCE + 1), page)
    assert (number, pages, len(found)) == shown


def test_numbers_as_words() -> None:
    assert plots.count(None) == plots.NOT_KNOWN == plots.span(None)
    assert (plots.count(12345), plots.short(1_234_000), plots.short(999)) == ("12,345", "1.2 M", "999")
    assert (plots.span(0), plots.span(60), plots.span(3 * 86_400)) == ("0 s", "60 s", "3.0 days")
    assert plots.ago(NOW - timedelta(seconds=50), NOW) == "50 s ago"
    assert plots.ago(NOW + timedelta(minutes=5), NOW) == "in 5 min"
    assert plots.clock(NOW) == "2026-05-04 12:00:00 UTC"


ROW = Row(replication="orders", state=State.IN_SYNC, facts=Facts(source="a", target="b"))


def test_an_action_is_offered_only_for_a_dag_that_may_be_triggered() -> None:
    assert actions.actions(ROW, ()) == [] == actions.failed_records(ROW, ("orders",))
    assert [each.name for each in actions.actions(ROW, {"orders"})] == ["run", "dry-run"]
    assert [each.name for each in actions.actions(ROW, {"orders.audit", "orders.backfill"})] == ["backfill", "audit"]
    intervals = Row(replication="orders", state=State.IN_SYNC, facts=Facts(source="a", target="b", by_interval=True))
    assert actions.actions(intervals, {"orders"}) == []  # Airflow names the interval


def test_a_schedule_is_switched_on_by_a_person_only() -> None:
    [run, _] = actions.actions(ROW, {"orders"})
    off = run.switched_off()
    assert not off.unpause
    assert [(field.name, field.kind, field.value) for field in off.fields] == [("unpause", "unpause", "")]
    [audit] = actions.actions(ROW, {"orders.audit"})
    assert audit.switched_off().unpause


def test_addresses_escape_what_stands_in_them() -> None:
    assert SITE.replication("a/b") == "/airflow/kafka-replication/replications/a%2Fb"
    assert SITE.run("a", "airflow-a-manual__1+2") == "/airflow/dags/a/runs/manual__1%2B2"
    assert SITE.run("a", "airflow-a.backfill-x") == "/airflow/dags/a.backfill/runs/x"
    assert SITE.run("a", "cli-1") is None
    assert [replication_of(dag) for dag in ("a", "a.audit", "a.failed", "a.backfill")] == ["a"] * 4


@pytest.mark.parametrize(
    ("file", "digest", "licence"),
    [
        ("htmx.min.js", HTMX, "Zero-Clause BSD"),
        ("uPlot.iife.min.js", UPLOT, "The MIT License"),
        ("uPlot.min.css", UPLOT_STYLE, "The MIT License"),
    ],
)
def test_a_library_is_the_file_of_its_package_and_has_its_licence_beside_it(
    file: str, digest: str, licence: str
) -> None:
    assert hashlib.sha256((STATIC / file).read_bytes()).hexdigest() == digest
    assert (STATIC / f"{file.partition('.')[0]}.LICENSE").read_text().startswith(licence)


@pytest.mark.parametrize("file", sorted([*FOLDER.glob("templates/*.html"), *FOLDER.glob("static/p*.*")]), ids=str)
def test_no_file_of_ours_names_another_host_or_has_a_script_or_style_within(file: Path) -> None:
    text = file.read_text()
    assert "//" not in re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE)
    if file.suffix == ".html":
        assert not re.findall(r"<script(?![^>]*src=)|<style|\sstyle=|\son[a-z]+=", text)
