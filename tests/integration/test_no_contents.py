"""Nothing that a run says or keeps has a key, a value, a header or a field of a record; only the target and what is in
quarantine do. Page, exporter, alerts and lineage are made of the store and of reports.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from kafka_replication.documents import as_json
from kafka_replication.model.choices import Action
from kafka_replication.runs.previewing import preview
from kafka_replication.runs.run import Request
from tests.support.audits import audit
from tests.support.failed import ask
from tests.support.hbase import HBaseGround
from tests.support.opensearch import OpenSearchGround
from tests.support.received import Inbox
from tests.support.scenario import Rec, Scenario
from tests.support.watching import watcher

MARK = "m4rk2023"  # in no form that a field has: names of fields are told
HEADERS = ((f"{MARK}-name", f"{MARK}-content".encode()),)
LARGE = 40_000  # no word of an index is that long


def marked(key: str, value: str) -> Rec:
    return Rec(f"{MARK}-{key}@example.org".encode(), value.encode(), HEADERS, 1_700_000_000_000)


RECORDS = [
    marked("good", json.dumps({"n": 1, "of": f"{MARK}-value"})),
    marked("type", json.dumps({"n": f"{MARK}-no-number"})),
    marked("unknown", json.dumps({"strict": {f"{MARK}-field": 1}})),
    marked("object", json.dumps({"n": {f"{MARK}-field": 1}})),
    marked("dynamic", json.dumps({f"{MARK}@example.org": 1})),
    marked("again", json.dumps({f"{MARK}@example.org": f"{MARK}-no-number"})),
    marked("ours", json.dumps({f"kafka.{MARK}": 1})),
    marked("text", f"no JSON {MARK}"),
    marked("half", f'{{"n": "{MARK}'),
    marked("large", json.dumps({"long": f"{MARK}-" * (LARGE // 9)})),
    Rec(None, f'{{"of": "{MARK}"}}'.encode(), HEADERS, 1_700_000_000_000),
    marked("last", json.dumps({"n": 2, "of": f"{MARK}-value"})),
]
MAPPING = {
    "properties": {
        "n": {"type": "long"},
        "long": {"type": "keyword"},
        "strict": {"type": "object", "dynamic": "strict"},
    }
}


def prepared(request: pytest.FixtureRequest, scene: Scenario, kind: str, shape: str) -> None:
    """A target that refuses some of the records, each for a reason of its own."""
    scene.settings["failures"] = {"policy": "fail"}
    if kind == "kafka":
        scene.target.create(scene.topic, 1, {"cleanup.policy": "compact", "max.message.bytes": str(LARGE)})
        scene.settings["transform"] = "tests.support.user_transforms:marked"
        return
    scene.settings["target"] = {"connection": "target", "type": kind, "shape": shape}
    if kind == "hbase":
        hbase = HBaseGround.of(request.getfixturevalue("hbase"), "latest" if shape == "latest" else "records")
        scene.client = dict(hbase.connection)
        hbase.create(scene.topic)
        hbase.limit(scene.topic, LARGE // 2)
        return
    index = OpenSearchGround.of(request.getfixturevalue("opensearch"), "latest" if shape == "latest" else "records")
    scene.client = dict(index.connection)
    index.create(scene.topic)
    index.ask("PUT", f"{scene.topic}/_mapping", MAPPING)


@pytest.mark.parametrize(
    ("kind", "shape", "refused"),
    [
        ("kafka", "", 3),
        pytest.param("opensearch", "records", 8, marks=pytest.mark.slow),
        pytest.param("opensearch", "latest", 9, marks=pytest.mark.slow),  # `test_no_error_shows_a_record`
        pytest.param("hbase", "latest", 2, marks=pytest.mark.slow),  # `test_no_error_shows_a_row`
    ],
)
def test_nothing_of_a_record_is_in_what_is_said_and_kept(
    request: pytest.FixtureRequest,
    scene: Scenario,
    received: Inbox,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    kind: str,
    shape: str,
    refused: int,
) -> None:
    caplog.set_level(logging.DEBUG)
    prepared(request, scene, kind, shape)
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, RECORDS)
    plan, findings = preview(scene.bare_run(), Request())
    said = [repr(plan), repr(findings)]
    failed = scene.run()
    assert failed.outcome == "failed", failed.table()
    assert watcher(scene, received).look().open
    for policy in ("quarantine", "skip"):
        report = scene.run(failures={"policy": policy, "limit": 20})
        said += [report.table(), json.dumps(as_json(report))]
        if policy == "quarantine":
            assert report.outcome == "done", report.table()
            rows = ask(scene, Action.LIST)
            said += [
                json.dumps(rows),
                json.dumps(ask(scene, Action.RETRY, everything=True)),
                audit(scene.bare_run()).text(),
            ]
            assert len(rows) == refused, rows
            scene.source.produce(scene.topic, RECORDS)
    watcher(scene, received).look()
    view = scene.bare_run().view()
    receipts = scene.bare_run().clusters.ledger.receipts({scene.key(): None}).all(scene.key())
    assert sum(len(receipt.failures) for receipt in receipts) == 2 * refused
    said += [
        failed.table(),
        json.dumps(as_json(failed)),
        repr(view),
        repr(list(receipts)),
        caplog.text,
        *capfd.readouterr(),
    ]
    said += [f"{one.title} {one.text}" for one in (*received.mails, *received.posts)]
    said += [
        file.read_bytes().decode("latin-1")
        for folder in (scene.folder, tmp_path)
        for file in folder.rglob("*")
        if file.is_file()
    ]
    assert received.mails and caplog.text
    for text in said:
        at = text.lower().find(MARK)
        assert at < 0, text[max(0, at - 500) : at + 100]
