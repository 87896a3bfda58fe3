"""What is remembered of open causes: the suite of `AlertMemory`, for the stores and for the file that stands in."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from kafka_replication.alerting.decide import decide
from kafka_replication.alerting.memory import STATE_FOLDER, AlertMemory, FileMemory
from kafka_replication.alerting.values import Alert, Cause, CauseKey, Decision, Kind, Observation, OpenCause
from kafka_replication.model.errors import BadInput, Unreachable
from kafka_replication.store import open_store

NAME = "orders-dr"


@pytest.fixture(params=["sqlite", "postgresql", "file"])
def memory(request: pytest.FixtureRequest, tmp_path: Path) -> AlertMemory:
    if request.param == "file":
        return FileMemory(tmp_path / "state")
    if request.param == "sqlite":
        return open_store(f"sqlite:///{tmp_path}/store.db")
    return open_store(request.getfixturevalue("postgresql_schema"))


def cause(kind: Kind = Kind.GAP, subject: str = "orders") -> Cause:
    places = ("orders-0 [0, 10)", "orders-1 at 7")
    return Cause(key=CauseKey(kind, subject), what="'lost'", remedy="say so", places=places, patience=1.5, run_id="r")


def observe(memory: AlertMemory, *causes: Cause, name: str = NAME) -> Decision:
    return memory.update_causes(name, lambda open_, now: decide(open_, Observation(causes=causes), now))


def announced(memory: AlertMemory, *causes: Cause) -> Sequence[Alert]:
    alerts = observe(memory, *(replace(each, patience=0) for each in causes)).alerts
    memory.confirm_alerts(NAME, alerts)
    return alerts


def test_an_empty_memory(memory: AlertMemory) -> None:
    assert list(memory.open_causes(NAME)) == []
    assert observe(memory) == Decision()
    memory.confirm_alerts(NAME, ())


def test_every_field_comes_back(memory: AlertMemory) -> None:
    decision = observe(memory, cause(), cause(Kind.FAILED))
    assert sorted(memory.open_causes(NAME), key=lambda row: row.key.kind) == sorted(
        decision.open, key=lambda row: row.key.kind
    )
    assert {row.key.kind: row.under for row in memory.open_causes(NAME)} == {
        Kind.GAP: None,
        Kind.FAILED: CauseKey(Kind.GAP, "orders"),
    }


def test_a_confirmed_alert_is_not_sent_again_and_a_healed_one_is_forgotten(memory: AlertMemory) -> None:
    assert len(announced(memory, cause())) == 1
    [row] = memory.open_causes(NAME)
    assert row.announced_at is not None
    assert row.claimed_until is None
    assert announced(memory, cause()) == ()
    assert [alert.event for alert in announced(memory)] == ["healed"]
    assert list(memory.open_causes(NAME)) == []


def test_replications_are_apart(memory: AlertMemory) -> None:
    observe(memory, cause())
    observe(memory, cause(subject="payments"), name="other")
    assert [row.key.subject for row in memory.open_causes(NAME)] == ["orders"]
    observe(memory, name="other")
    assert len(memory.open_causes(NAME)) == 1


def test_the_clock_is_near(memory: AlertMemory) -> None:
    """It is the store's own, in UTC."""
    seen: list[datetime] = []

    def look(open_: Sequence[OpenCause], now: datetime) -> Decision:
        seen.append(now)
        return Decision(open=tuple(open_))

    memory.update_causes(NAME, look)
    assert abs((seen[-1] - datetime.now(UTC)).total_seconds()) < 3600


def test_of_many_that_look_at_once_one_tells(memory: AlertMemory) -> None:
    start, told = threading.Barrier(6), list[Alert]()

    def look() -> None:
        start.wait()
        told.extend(observe(memory, Cause(key=CauseKey(Kind.GAP, "orders"), what="w", remedy="r")).alerts)

    threads = [threading.Thread(target=look) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(told) == 1


def test_the_file_is_private_and_its_folder_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STATE_FOLDER, str(tmp_path / "named"))
    observe(FileMemory(), cause())
    assert (tmp_path / "named").stat().st_mode & 0o077 == 0
    assert len(FileMemory().open_causes(NAME)) == 1


def test_a_damaged_file_counts_as_empty(tmp_path: Path) -> None:
    memory = FileMemory(tmp_path)
    observe(memory, cause())
    for file in tmp_path.glob("*.json"):
        file.write_text("{")
    assert len(observe(memory, cause()).open) == 1


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="file/state"):
        observe(FileMemory(tmp_path / "file" / "state"), cause())


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
