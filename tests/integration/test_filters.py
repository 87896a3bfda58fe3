"""What a filter leaves out is not on the target, is counted, and the audit agrees."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support import audits as auditing
from tests.support.actions import receipts_of
from tests.support.checker import read
from tests.support.scenario import Rec, Scenario, only

MINUTE = 60_000
NOON = 1_700_000_000_000


def order(number: int, **more: Any) -> Rec:
    value = json.dumps({"id": number, "amount": number * 10, "customer": {"country": "de" if number % 2 else "fr"}})
    headers = (("type", b"order" if number % 3 else b"test"),)
    return Rec(b"order-%d" % number, value.encode(), headers, NOON + number * MINUTE)


RECORDS = [
    *(order(number) for number in range(12)),
    Rec(b"order-1", None, (("type", b"order"),), NOON),  # a tombstone
    Rec(None, b"plain text", (), NOON),
    Rec(b"\xff\xfe", b"\x00\xff binary", (), NOON),
]
FILTERS = {
    "headers.type == 'order'": [1, 2, 4, 5, 7, 8, 10, 11, 12],
    "value.amount >= `50` && value.customer.country == 'de'": [5, 7, 9, 11],
    "!tombstone && key != `null` && timestamp < time('2023-11-14T22:16:00Z')": [0, 1, 2],
    "size > `1000`": [],
}


# `tests/unit/test_filter_expression.py` has the language.
@pytest.mark.parametrize(("expression", "kept"), FILTERS.items(), ids=FILTERS)
def test_a_filter(scene: Scenario, expression: str, kept: list[int]) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, RECORDS)
    scene.settings |= {"filter": expression, "copy": {"chunk_records": 4}}
    report = scene.run()
    assert report.outcome == "done", report.table()
    line = only(report)
    assert (line.copied, line.filtered, line.not_visible, line.missing) == (len(kept), 15 - len(kept), 0, 0)
    assert line.digest_ok and scene.watermark() == 15
    source = [record for _, record in read(scene.source.bootstrap, scene.topic, 0)]
    assert [record for _, record in read(scene.target.bootstrap, scene.topic, 0)] == [source[n] for n in kept]
    assert {receipt["transform"]["name"] for _, receipt in receipts_of(scene).values()} == {"filter"}
    audited = auditing.audit(scene.bare_run("audit"))
    assert audited.outcome == "clean" and audited.partitions[0].by_content == 15, audited.text()
