"""An answer to ``_bulk`` is judged item by item, whatever its status as a whole."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_replication.model.errors import Fenced, NotAuthorized, Refused, ReplicationError, Unexpected
from kafka_replication.opensearch.client import Client
from kafka_replication.opensearch.documents import Bulk, deletion, item, judged
from kafka_replication.opensearch.journal import IndexShelf
from kafka_replication.targets.journal import LedgerRecord
from kafka_replication.targets.record_store import Resend
from tests.support.http_proxy import Proxy, running

MARK = "m4rk-of-bob@example.org"
ITEMS = [item(offset, f"t-0-{offset}-1", 3, b"{}") for offset in (5, 6, 7)]


def answer(*items: dict[str, Any]) -> dict[str, Any]:
    return {"items": [{"index": one} for one in items]}


def error(status: int, kind: str, reason: str = "because", **more: Any) -> dict[str, Any]:
    return {"status": status, "error": {"type": kind, "reason": reason, **more}}


def test_created_and_updated_are_done() -> None:
    outcome = judged(ITEMS, answer({"status": 201}, {"status": 200}, {"status": 201}), "orders")
    assert not outcome.again and not outcome.refused


def test_a_deletion_of_what_is_not_there_is_done() -> None:
    assert not judged([deletion(5, "a", 3)], {"items": [{"delete": {"status": 404}}]}, "orders").again


def test_what_has_no_room_now_is_sent_again_and_its_neighbours_are_not() -> None:
    for one in (
        error(429, "rejected_execution_exception"),
        error(503, "unavailable_shards_exception"),
        error(403, "cluster_block_exception"),
        error(429, "cluster_block_exception"),
        error(400, "index_closed_exception"),
    ):
        outcome = judged(ITEMS, answer({"status": 201}, one, {"status": 201}), "orders")
        assert outcome.again == (ITEMS[1],) and one["error"]["type"] in outcome.why and not outcome.refused


def test_a_refused_document_is_named_with_field_and_type_and_shows_nothing_of_it() -> None:
    cause = {"reason": f'For input string: "{MARK}"', "caused_by": {"reason": MARK}}
    why = f"failed to parse field [n] of type [long] in document with id '{MARK}'. Preview of field's value: '{MARK}'"
    refused = error(400, "mapper_parsing_exception", why, caused_by=cause)
    outcome = judged(ITEMS, answer({"status": 201}, {"status": 201}, refused), "orders")
    [failure] = outcome.refused
    assert (failure.offset, failure.error) == (7, "mapper_parsing_exception")
    assert failure.reason.endswith("mapper_parsing_exception: failed to parse field [n] of type [long]")
    strict = f"mapping set to strict, dynamic introduction of [{MARK}] within [_doc] is not allowed"
    refused = error(400, "strict_dynamic_mapping_exception", strict)
    [failure] = judged(ITEMS[:1], answer(refused), "orders").refused
    assert failure.reason.endswith("introduction of [...]") and MARK not in failure.reason


def test_what_is_sent_again_shows_nothing_of_the_document() -> None:
    why = f"[orders][0] primary shard is not active, request: [index {{[orders][{MARK}], source[{MARK}]}}]"
    outcome = judged(ITEMS[:1], answer(error(503, "unavailable_shards_exception", why)), "orders")
    assert outcome.why == "503 unavailable_shards_exception"
    with pytest.raises(Unexpected) as raised:
        judged(ITEMS[:1], answer(error(409, "another_exception", f"[{MARK}]: conflict")), "orders")
    assert MARK not in str(raised.value)


@pytest.mark.parametrize(
    ("one", "kind"),
    [
        (error(409, "version_conflict_engine_exception"), Fenced),
        (error(409, "another_exception"), Unexpected),
        (error(404, "index_not_found_exception"), Refused),
        (error(400, "routing_missing_exception"), Refused),
        (error(403, "security_exception"), NotAuthorized),
    ],
)
def test_what_concerns_all_of_them_is_an_error(one: dict[str, Any], kind: type[ReplicationError]) -> None:
    with pytest.raises(kind):
        judged(ITEMS, answer({"status": 201}, one, {"status": 201}), "orders")


@pytest.mark.parametrize("given", [{}, {"items": []}, answer({"status": 201}), answer(*[{"status": 201}] * 4)])
def test_an_answer_about_fewer_or_more_says_nothing(given: dict[str, Any]) -> None:
    with pytest.raises(Unexpected, match="about 3 documents"):
        judged(ITEMS, given, "orders")


@pytest.mark.parametrize("page", ["", f"<html>Who is {MARK}?</html>", f'"{MARK}"', "7"])
def test_a_page_in_place_of_an_answer_is_an_error_with_a_remedy(page: str) -> None:
    with running(Proxy("", lambda *_: (200, page.encode()), lambda *_: True)) as url:
        client = Client({"url": url}, 60)
        for write in (
            lambda: Bulk(client=client, index="orders", resend=Resend(stall_seconds=1)).write(ITEMS),
            lambda: IndexShelf(client, "orders").store([LedgerRecord(1, "t", 0, "key", value="")]),
        ):
            with pytest.raises(Unexpected, match="no JSON object") as raised:
                write()
            assert MARK not in str(raised.value) and "connection's address" in raised.value.remedy
