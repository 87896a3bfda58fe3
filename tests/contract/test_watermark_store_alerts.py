"""What the store remembers of open causes, and who of several processes is given an alert to send."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from sqlalchemy.engine import make_url

from kafka_replication.alerting.open_causes import (
    Alert,
    Cause,
    CauseKey,
    Decision,
    Kind,
    Observation,
    OpenCause,
    decide,
)
from kafka_replication.model.errors import BadInput, Unreachable
from kafka_replication.store import open_store, sight
from kafka_replication.store.watermark_store import WatermarkStore
from kafka_replication.watermarks.sight import CertificateRow, Drill

NAME = "orders-dr"


@pytest.fixture
def store(store_url: str) -> Iterator[WatermarkStore]:
    with closing(open_store(store_url)) as opened:
        yield opened


def cause(kind: Kind = Kind.GAP, subject: str = "orders") -> Cause:
    places = ("orders-0 [0, 10)", "orders-1 at 7")
    return Cause(key=CauseKey(kind, subject), what="'lost'", remedy="say so", places=places, patience=1.5, run_id="r")


def observe(store: WatermarkStore, *causes: Cause, name: str = NAME) -> Decision:
    return store.update_causes(name, lambda open_, now: decide(open_, Observation(causes=causes), now))


def announced(store: WatermarkStore, *causes: Cause) -> Sequence[Alert]:
    return observe(store, *(replace(each, patience=0) for each in causes)).alerts


def test_an_empty_memory(store: WatermarkStore) -> None:
    assert list(store.open_causes(NAME)) == []
    assert observe(store) == Decision()
    store.take_back_alerts(NAME, ())


def test_every_field_comes_back(store: WatermarkStore) -> None:
    decision = observe(store, cause(), cause(Kind.FAILED))
    assert sorted(store.open_causes(NAME), key=lambda row: row.key.kind) == sorted(
        decision.open, key=lambda row: row.key.kind
    )
    assert {row.key.kind: row.under for row in store.open_causes(NAME)} == {
        Kind.GAP: None,
        Kind.FAILED: CauseKey(Kind.GAP, "orders"),
    }


def test_an_alert_is_not_sent_again_and_a_healed_one_is_forgotten(store: WatermarkStore) -> None:
    assert len(announced(store, cause())) == 1
    [row] = store.open_causes(NAME)
    assert row.announced_at is not None
    assert announced(store, cause()) == ()
    assert [alert.event for alert in announced(store)] == ["healed"]
    assert list(store.open_causes(NAME)) == []


def test_what_nobody_took_is_sent_again_and_what_is_over_comes_back_for_it(store: WatermarkStore) -> None:
    for events in (["opened"], ["healed"]):
        for _ in range(2):
            alerts = announced(store, *([cause()] if events == ["opened"] else []))
            assert [alert.event for alert in alerts] == events
            for _ in range(2):  # an answer of the database may be lost
                store.take_back_alerts(NAME, alerts)
        alerts = announced(store, *([cause()] if events == ["opened"] else []))
        assert [alert.event for alert in alerts] == events
    assert list(store.open_causes(NAME)) == []
    assert len(store.past_alerts(NAME, 9)) == 1


def test_replications_are_apart(store: WatermarkStore) -> None:
    observe(store, cause())
    observe(store, cause(subject="payments"), name="other")
    assert [row.key.subject for row in store.open_causes(NAME)] == ["orders"]
    observe(store, name="other")
    assert len(store.open_causes(NAME)) == 1


def test_the_clock_is_near(store: WatermarkStore) -> None:
    """It is the store's own, in UTC."""
    seen: list[datetime] = []

    def look(open_: Sequence[OpenCause], now: datetime) -> Decision:
        seen.append(now)
        return Decision(open=tuple(open_))

    store.update_causes(NAME, look)
    assert abs((seen[-1] - datetime.now(UTC)).total_seconds()) < 3600


def test_of_many_that_look_at_once_one_tells(store: WatermarkStore) -> None:
    start, told = threading.Barrier(6), list[Alert]()

    def look() -> None:
        start.wait()
        told.extend(observe(store, Cause(key=CauseKey(Kind.GAP, "orders"), what="w", remedy="r")).alerts)

    threads = [threading.Thread(target=look) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(told) == 1


def test_a_database_that_answers_and_takes_nothing_is_named_by_every_look(postgresql_schema: str) -> None:
    """A standby, or a server with a full disk."""
    open_store(postgresql_schema).close()
    options = f"{make_url(postgresql_schema).query['options']} -cdefault_transaction_read_only=on"
    read_only = make_url(postgresql_schema).update_query_dict({"options": options})
    with (
        closing(open_store(read_only.render_as_string(hide_password=False))) as store,
        pytest.raises(Unreachable, match="read-only"),
    ):
        observe(store)


def test_when_airflow_looked_last(store_url: str) -> None:
    """It is no cause of an alert."""
    with closing(open_store(store_url)) as store:
        assert store.last_look(NAME) is None
        store.record_look(NAME, paused=True)
        first = store.last_look(NAME)
        assert first is not None and first.paused
        store.record_look(NAME, paused=False)
        second = store.last_look(NAME)
        assert second is not None and not second.paused and second.at >= first.at
        assert list(store.open_causes(NAME)) == []
        observe(store, cause())
        assert store.last_look(NAME) == second
        assert store.last_look("other") is None


def test_the_last_drill_is_kept_beside_the_causes(store: WatermarkStore) -> None:
    """With all of its fields; the front page reads it with all else."""
    assert store.last_drill(NAME) is None
    drill = Drill(
        at="2030-01-31T06:00:00.000Z",
        records=312,
        unknown=1,
        seconds=4.0,
        since="last verification",
        groups_exact=17,
        groups_moved=18,
    )
    for later in (drill, replace(drill, seconds=None)):
        store.record_drill(NAME, later)
        assert store.last_drill(NAME) == later
        assert [seen.drill for seen in store.front([NAME])] == [later]
    observe(store, cause())
    assert store.last_drill(NAME) == replace(drill, seconds=None) and len(store.open_causes(NAME)) == 1
    assert store.last_drill("other") is None


def test_certificates_are_kept_byte_by_byte_and_the_oldest_go(
    store: WatermarkStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sight, "CERTIFICATES_KEPT", 3)
    time = datetime(2030, 1, 31, 6, tzinfo=UTC)
    row = CertificateRow(name="0", time=time, about="cutover", verified=True, verdict="ok", signed_by=None)
    assert store.certificates(NAME) == []
    for number in range(5):
        one = replace(row, name=str(number), verified=bool(number % 2), signed_by="ab" * number or None)
        store.keep_certificate(NAME, one, b"{\x00%d}" % number, b"<%d>" % number)
        assert store.certificates(NAME)[0] == one
    store.keep_certificate("other", row, b"", b"")
    assert [one.name for one in store.certificates(NAME)] == ["4", "3", "2"]
    assert store.certificate_file(NAME, "4", "json") == b"{\x004}"
    assert store.certificate_file(NAME, "2", "html") == b"<2>"
    for name, stem in ((NAME, "1"), ("other", "4")):
        with pytest.raises(BadInput, match="has no certificate"):
            store.certificate_file(name, stem, "json")
