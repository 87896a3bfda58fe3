"""Sessions of a target without transactions: those of dead runs are ended one by one."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_replication.model.errors import Busy, OutOfTime, ReplicationError, Unreachable
from kafka_replication.targets.stored_target import StoredTarget


class Reached(StoredTarget):
    """A target whose writer ``w1`` does not answer, or raises another error."""

    def __init__(self, error: ReplicationError | None = None) -> None:
        self.fenced: list[str] = []
        self._error = error or Unreachable("the target does not answer", "start it")

    @classmethod
    def checked(cls, name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        return dict(settings)

    def writer(self, writer_id: str, what: str) -> Any:
        def fence() -> None:
            if writer_id == "w1":
                raise self._error
            self.fenced.append(writer_id)

        return SimpleNamespace(fence=fence)


def test_one_that_cannot_be_ended_is_only_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The results of ranges that ended before are not lost with it."""
    target = Reached()
    target.end_sessions({"w1": "orders-0", "w2": "orders-1"}, lambda: None)
    assert target.fenced == ["w2"]
    assert "orders-0" in caplog.text and "does not answer" in caplog.text


def test_the_check_before_each_ends_all() -> None:
    def check() -> None:
        raise OutOfTime("the time is over", "run again")

    with pytest.raises(ReplicationError):
        Reached().end_sessions({"w2": "orders-1"}, check)


@pytest.mark.parametrize("kind", [Busy, OutOfTime])
def test_an_end_of_the_run_is_not_taken_for_a_session_that_cannot_be_ended(kind: type[ReplicationError]) -> None:
    target = Reached(kind("no more", "run again"))
    with pytest.raises(kind):
        target.end_sessions({"w1": "orders-0", "w2": "orders-1"}, lambda: None)
    assert target.fenced == []
