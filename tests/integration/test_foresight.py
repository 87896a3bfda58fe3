"""What retention will drop is said before it happens, by every command that looks, and told as an alert."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from kafka_replication.kafka import offsets
from kafka_replication.kafka.sampling import first_times
from kafka_replication.model.errors import Unreachable
from kafka_replication.runs import checking, previewing, steps
from kafka_replication.runs.reporting import standing
from kafka_replication.runs.run import Request
from tests.support.command_line import command
from tests.support.received import Inbox
from tests.support.scenario import Rec, Scenario
from tests.support.watching import events, watcher

DAY = 86_400_000
WEEK = {"retention.ms": str(7 * DAY)}


def aged(count: int, days: float, first: int = 0) -> list[Rec]:
    moment = round(time.time() * 1000 - days * DAY)
    return [Rec(b"k%d" % n, b"v%d" % n, (), moment + n) for n in range(first, first + count)]


def stopped_long_ago(scene: Scenario) -> None:
    """The source keeps a week; 30 records wait, the oldest for six days and a half."""
    scene.source.create(scene.topic, 2, config=WEEK)
    scene.source.produce(scene.topic, aged(50, 6.9))
    assert scene.run().outcome == "done"
    scene.source.produce(scene.topic, aged(30, 6.5, 50))


def test_records_that_the_source_will_drop_are_told_and_it_is_over_once_they_are_copied(
    scene: Scenario, received: Inbox
) -> None:
    """Told once, whoever looks: here first while the target is away, because of which runs do not start."""
    stopped_long_ago(scene)
    watching = watcher(scene, received, timeouts={"request": 2})
    away = replace(watching, connections=replace(scene.connections, target="127.0.0.1:9", alerts=received.addresses))
    assert events(away.look()) == [f"opened loss-foreseen {scene.topic}"]
    scene.settings |= {"alerts": {"apprise": "oncall"}}
    environment = {"AIRFLOW_CONN_ONCALL": received.connection}
    code, out, err = command(scene, "watch", "--once", "--json", **environment)
    [watched] = json.loads(out)["replications"]
    assert (code, [row["kind"] for row in watched["open"]]) == (1, ["loss-foreseen"]), err
    [mail], [post] = received.mails, received.posts
    assert (
        mail.title == f"ALERT {scene.name}: {scene.topic}: source records are about to be lost before they are copied"
    )
    assert (post.title, post.type) == (mail.title, "failure")
    assert "records may be lost in 12.0 h unless they are copied before" in mail.text and "30 offsets wait" in mail.text
    assert f"{scene.topic}-0 that is not copied, at offset 50" in mail.text and "for 7 days" in mail.text
    assert f"kind: loss-foreseen\nevent: opened\ntopic: {scene.topic}" in mail.text
    row, other = standing(scene.bare_run())
    assert (round((row.lost_in_seconds or 0) / 3600), other.lost_in_seconds) == (12, None)
    report = scene.run()
    assert report.outcome == "done" and "NOTE records may be lost in 12.0 h" in report.table()
    assert events(watching.look()) == [f"healed loss-foreseen {scene.topic}"]


def test_check_and_plan_warn_before_records_are_lost(scene: Scenario) -> None:
    stopped_long_ago(scene)
    for name in ("check", "plan"):
        code, out, err = command(scene, name, "--json")
        lost = [row for row in json.loads(out)["findings"] if "records may be lost in 12.0 h" in row["what"]]
        assert (code, [(row["severity"], row["where"]) for row in lost]) == (
            0,
            [("warning", f"{scene.topic} -> {scene.topic}")],
        ), err
        assert f"raise retention.ms of {scene.topic} on the source" in lost[0]["remedy"]


def test_copies_that_an_existing_target_will_drop_are_told_before_and_in_the_run(scene: Scenario) -> None:
    """They are too old for the target within a day, but not yet."""
    scene.source.create(scene.topic)
    scene.target.create(scene.topic, config=WEEK)
    scene.source.produce(scene.topic, [*aged(40, 6.5), *aged(10, 0.1, 40)])
    said = f"{scene.topic} keeps records for 7 days (retention.ms), and up to 40 of the 50 offsets to be copied to it"
    for found in (checking.check(scene.bare_run()).findings, steps.preview(scene.bare_run(), Request())[1]):
        [finding] = [finding for finding in found if said in finding.what]
        assert finding.remedy == f"raise retention.ms of {scene.topic} first"
    report = scene.run()
    assert report.outcome == "done"
    [note] = report.notes
    assert note.startswith(said) and f"at offset 0 of {scene.topic}-0, is from 20" in note
    scene.source.produce(scene.topic, aged(10, 0.1, 50))
    assert scene.run().notes == ()


def test_the_source_is_asked_only_if_something_waits_and_once_for_all_partitions(
    scene: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, read = list[int](), list[int]()

    def counting(counted: list[int], call: Callable[..., object], place: int) -> Callable[..., object]:
        def count(*arguments: object) -> object:
            counted.append(len(arguments[place]))  # type: ignore[arg-type]  # a collection of partitions
            return call(*arguments)

        return count

    monkeypatch.setattr(offsets, "at_time_each", counting(asked, offsets.at_time_each, 1))
    monkeypatch.setattr(f"{previewing.__name__}.first_times", counting(read, first_times, 2))
    scene.source.create(scene.topic, 3, config=WEEK)
    for partition in range(3):
        scene.source.produce(scene.topic, aged(20, 0.1), partition)
    assert scene.run().outcome == "done"
    asked.clear()
    scene.idle_run()
    assert asked == []
    for partition in range(3):
        scene.source.produce(scene.topic, aged(20, 0.1, 20), partition)
    assert scene.run().outcome == "done"
    assert (asked, read) == ([3], [])  # the target keeps more than the source


def test_what_cannot_be_found_out_stops_nobody(scene: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped_long_ago(scene)

    def unanswered(*_: object) -> object:
        raise Unreachable("no answer", "wait")

    monkeypatch.setattr(offsets, "at_time_each", unanswered)
    report = scene.run()
    assert (report.outcome, report.notes) == ("done", ())
