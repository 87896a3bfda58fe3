"""Pages of a real store: what they say to somebody who has to act, beside the numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from html import unescape
from pathlib import Path

import pytest

from kafka_replication.documents import GapRow, place
from kafka_replication.ledger.values import Seal
from kafka_replication.model.offsets import OffsetRange, PartitionKey, TopicPartition
from kafka_replication.store import open_store
from kafka_replication.store.watermark_store import WatermarkStore
from kafka_replication.watermarks.sight import CertificateRow, Drill, Facts, Lag
from kafka_replication.web import pages
from kafka_replication.web.actions import Site
from kafka_replication.web.pages import Reader
from tests.support.status_rows import status_row

NAME = "orders-dr"
KEY = PartitionKey(NAME, TopicPartition("orders", 3), "orders")
FACTS = Facts(source="kafka_a", target="kafka_b")
ROW = status_row(
    partition=3,
    state="gap",
    log_start=3_000,
    source_end=4_000,
    position=2_000,
    watermark=2_000,
    lag=2_000,
    lag_seconds=60.0,
    last_verified=None,
    error="offsets 2000 to 3000 can no longer be read",
    remedy="approve the gap",
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[WatermarkStore]:
    with closing(open_store(f"sqlite:///{tmp_path}/store.db")) as store:
        yield store


def reader(store: WatermarkStore) -> Reader:
    everything = frozenset({NAME, *(f"{NAME}.{kind}" for kind in ("backfill", "audit", "failed", "repair"))})
    return Reader(store=store, site=Site("/kafka-replication", ""), now=datetime.now(UTC), allowed=everything)


def text(html: str) -> str:
    return unescape(" ".join(re.sub(r"<[^>]+>", " ", html).split()))


def ended(store: WatermarkStore, run_id: str, state: str) -> None:
    store.record_standing(NAME, FACTS, Lag(0, 0.0), [])
    store.start_run(run_id, NAME, "live", "{}")
    store.finish_run(run_id, state)


def test_a_run_that_failed_leads_to_its_page_from_everywhere(store: WatermarkStore) -> None:
    ended(store, "cli-1", "failed")
    at = reader(store)
    link = f'href="{at.site.ranges(NAME, "cli-1")}"'
    for html in (pages.front(at, lambda name: True, "", 1, part=False), pages.live(at, NAME)):
        assert link in html
        assert "run cli-1 failed Remedy: " in text(html)


def test_a_run_that_ended_before_any_range_says_where_the_reason_is(store: WatermarkStore) -> None:
    ended(store, "cli-1", "failed")
    said = text(pages.run(reader(store), NAME, "cli-1"))
    assert "ended before it stored the result of a range" in said and "the log of its last task" in said
    ended(store, "cli-2", "done")
    assert "Remedy" not in pages.run(reader(store), NAME, "cli-2")


def test_what_nobody_has_looked_at_says_so_with_the_remedy(store: WatermarkStore) -> None:
    store.record_facts(NAME, FACTS)
    said = text(pages.front(reader(store), lambda name: True, "", 1, part=False))
    assert "not known never measured" in said
    assert "Remedy: switch the DAG replications.watch on" in said


def test_the_form_that_gives_lost_offsets_up_has_them_already(store: WatermarkStore) -> None:
    store.record_standing(NAME, FACTS, Lag(2_000, 60.0), [ROW])
    fields = values(pages.partition(reader(store), KEY), "approve-gap")
    assert fields == {"topic": "orders", "partition": "3", "from": "2000", "until": "3000", "reason": ""}
    assert values(pages.partition(reader(store), KEY), "audit")["from"] == ""
    store.record_standing(NAME, FACTS, Lag(2_000, 60.0), [replace(ROW, log_start=0)])
    assert values(pages.partition(reader(store), KEY), "approve-gap")["from"] == ""


def values(html: str, action: str) -> dict[str, str]:
    """The fields of the form of this action, with their values."""
    [form] = re.findall(rf'id="action-{action}".*?</form>', html, re.DOTALL)
    return dict(re.findall(r'<input name="(\w+)" data-kind="\w+" value="([^"]*)"', form))


def test_a_page_of_a_replication_is_whole(store: WatermarkStore) -> None:
    store.record_standing(NAME, FACTS, Lag(2_000, 60.0), [ROW])
    said = text(pages.replication(reader(store), NAME))
    for words in ("kafka_a → kafka_b", "2,000 records, 60 s", "orders-3", "Remedy: approve the gap", "None is open."):
        assert words in said, words


def test_settings_that_differ_are_named_once_for_each_topic(store: WatermarkStore) -> None:
    rows = [replace(ROW, partition=number, settings=("flush.ms is 9, and should be <5>",)) for number in range(2)]
    store.record_standing(NAME, FACTS, Lag(2_000, 60.0), rows)
    said = pages.replication(reader(store), NAME)
    assert said.count("flush.ms is 9, and should be &lt;5&gt;") == 1


def test_the_direction_its_seal_and_the_last_drill(store: WatermarkStore) -> None:
    store.record_standing(NAME, FACTS, Lag(2_000, 60.0), [ROW])
    said = text(pages.replication(reader(store), NAME))
    assert "kafka_a → kafka_b : open. Last failover drill: none yet" in said
    seal = Seal(why="cutover", by="ann", reason="<moved>", target_until=9, run_id="over", time="2030-01-31T06:00:00Z")
    rows = [replace(ROW, partition=number, seal=replace(seal, run_id=f"over-{number}")) for number in range(2)]
    store.record_standing(NAME, FACTS, Lag(2_000, 60.0), [*rows, replace(ROW, partition=2)])
    drill = Drill(
        at="2030-01-31T05:00:00Z",
        records=312,
        unknown=0,
        seconds=4.0,
        since="oldest record",
        groups_exact=17,
        groups_moved=18,
    )
    store.record_drill(NAME, drill)
    html = pages.replication(reader(store), NAME)
    said = text(html)
    assert "2 of 3 partitions are sealed, and nothing more is copied there." in said
    assert html.count("sealed by cutover at 2030-01-31T06:00:00Z, by ann: &lt;moved&gt;") == 1
    assert "312 records, 4 s (the age of the oldest of them), 17 of 18 groups exact" in said
    assert "None yet: a cut-over makes one" in said
    made = CertificateRow(
        name="orders-dr-1",
        time=datetime.now(UTC),
        about="cutover <b>",
        verified=True,
        verdict="ok",
        signed_by="ab",
    )
    store.keep_certificate(NAME, made, b"{}", b"<p>")
    html = pages.replication(reader(store), NAME)
    for kind in ("html", "json"):
        assert f'href="/kafka-replication/replications/orders-dr/certificates/orders-dr-1.{kind}"' in html
    assert "cutover <b>: all verified ( JSON ; signed by key ab)" in text(html)
    turn = GapRow(
        **place(KEY, OffsetRange(0, 9)),
        generation=1,
        kind="returned",
        reason="repaired",
        approved_by="bob",
        time="2030-02-01T06:00:00Z",
        run_id="back",
    )
    store.record_standing(NAME, FACTS, Lag(0, 0.0), [replace(ROW, gaps=(turn,))])
    said = text(pages.replication(reader(store), NAME))
    assert "open. It was opened behind the other direction's seal at 2030-02-01T06:00:00Z, by bob: repaired" in said
