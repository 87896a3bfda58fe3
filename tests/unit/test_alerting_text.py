"""What an alert says to people and to programs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from kafka_replication.alerting.open_causes import Alert, AlertEvent, Cause, CauseKey, Kind, OpenCause
from kafka_replication.alerting.telling import Links, message

AT = datetime(2030, 1, 31, 12, tzinfo=UTC)


def alert(kind: Kind, event: AlertEvent = AlertEvent.OPENED, topic: str = "") -> Alert:
    cause = Cause(key=CauseKey(kind, topic), what="it\nbroke", remedy="mend it", run_id="cli-1")
    row = OpenCause(cause=cause, since=AT - timedelta(minutes=30), at=AT, last_seen=AT)
    return Alert(event=event, to=(), open=row, at=AT)


def test_a_title_says_whether_it_is_wrong_or_was() -> None:
    for kind in Kind:
        wrong = message("x", [alert(kind)]).title
        over = message("x", [alert(kind, AlertEvent.HEALED)]).title
        assert over.startswith("OVER x: ") and over.endswith(" (30 min)")
        assert over.removeprefix("OVER x: ").removesuffix(" (30 min)") != wrong.removeprefix("ALERT x: ")
    assert message("x", [alert(Kind.STALLED, AlertEvent.HEALED)]).title == "OVER x: a run made no progress (30 min)"


def test_how_bad_it_is_is_that_of_the_worst() -> None:
    lag, failed, over = alert(Kind.LAG), alert(Kind.FAILED), alert(Kind.FAILED, AlertEvent.HEALED)
    near = alert(Kind.RETENTION, topic="orders")
    for alerts, severity in (
        ([over], "success"),
        ([over, lag], "warning"),
        ([near], "failure"),
        ([lag, failed, over], "failure"),
    ):
        assert message("x", alerts).severity == severity


def test_the_last_lines_of_each_alert_are_for_programs() -> None:
    links = Links(lambda run_id: f"https://ui/{run_id}", "https://ui/page")
    both = message("x", [alert(Kind.FAILED, topic="orders"), alert(Kind.LAG)], links)
    first, second = (dict(line.split(": ", 1) for line in block.split("\n")[2:]) for block in both.text.split("\n\n"))
    assert list(first) == ["cause", "run", "remedy", "link", "page", "replication", "kind", "event", "topic"]
    assert (first["cause"], first["link"], first["kind"]) == ("it broke", "https://ui/cli-1", "run-failed")
    assert first["page"] == second["page"] == "https://ui/page"
    assert (second["kind"], "topic" in second) == ("lag", False)
    assert [(fields.kind, fields.topic, fields.event) for fields in both.alerts] == [
        ("run-failed", "orders", "opened"),
        ("lag", "", "opened"),
    ]
