"""Records that cannot be copied are set aside as the policy says; nothing of them leaves the arithmetic."""

from __future__ import annotations

from tests.support.checker import read
from tests.support.scenario import Rec, Scenario, numbered, only

QUARANTINE = {"policy": "quarantine"}


def test_a_record_without_a_key_goes_to_quarantine(scene: Scenario) -> None:
    scene.source.create(scene.topic)
    scene.target.create(scene.topic, 1, {"cleanup.policy": "compact"})
    headers = (("name", b"value"), ("null", None))
    scene.source.produce(scene.topic, [*numbered(10), Rec(None, b"no key", headers), *numbered(10, 10)])
    report = scene.run(failures=QUARANTINE)
    assert report.outcome == "done", report.table()
    line = only(report)
    assert (line.copied, line.quarantined, line.skipped, line.not_visible) == (20, 1, 0, 0)
    assert line.range.span == 21 and line.digest_ok
    assert scene.watermark() == 21
    topic = scene.replication().quarantine_topic
    found = [record for number in range(16) for _, record in read(scene.target.bootstrap, topic, number)]
    assert [(record.key, record.value) for record in found] == [(None, b"no key")]
    assert found[0].headers[:2] == headers
