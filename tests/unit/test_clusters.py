"""The connections of a run: all are found before a cluster is asked, and both clusters are asked at once."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from kafka_replication.config import Replication
from kafka_replication.connections import EnvironmentConnections
from kafka_replication.kafka import clients
from kafka_replication.model.errors import BadInput, ConnectionMissing, Refused, ReplicationError, Unreachable
from kafka_replication.runs.clusters import Clusters, raise_together
from kafka_replication.runtime.deadline import NEVER

SECONDS = 30  # a safety net: nothing takes so long


def clusters(**more: Any) -> Clusters:
    document = {
        "name": "orders-dr",
        "source": {"connection": "one"},
        "target": {"connection": "other"},
        "topics": {"include": ["orders"]},
        **more,
    }
    return Clusters(Replication.model_validate(document), EnvironmentConnections(), NEVER)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses of the clusters that are asked. Each answers only when both were asked, and refuses."""
    addresses, both = list[str](), threading.Barrier(2)

    def admin(config: clients.ClientConfig, *_: object) -> None:
        address = str(config["bootstrap.servers"])
        addresses.append(address)
        both.wait(SECONDS)
        raise Unreachable(f"{address} is away", "start it")

    monkeypatch.setattr(clients, "admin", admin)
    for name in ("one", "other"):
        extra = {"bootstrap.servers": f"{name}:9092"}
        monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps({"conn_type": "kafka", "extra": extra}))
    return addresses


def test_both_clusters_are_asked_side_by_side_and_both_failures_are_said(asked: list[str]) -> None:
    with pytest.raises(Unreachable) as failed:
        clusters().connect()
    assert sorted(asked) == ["one:9092", "other:9092"]
    assert failed.value.what.count("is away") == 2
    assert failed.value.remedy == "start it"


@pytest.mark.parametrize(
    "named",
    [
        {"source": {"connection": "misspelt"}},
        {"target": {"connection": "misspelt"}},
        {"spark": {"connection": "misspelt"}},
    ],
    ids=lambda named: next(iter(named)),
)
def test_a_connection_that_is_missing_is_named_before_a_cluster_is_asked(
    named: dict[str, Any], asked: list[str]
) -> None:
    for connect in (
        clusters(**named).connect,
        lambda: clusters(**named).source_admin,
        lambda: clusters(**named).target,
    ):
        with pytest.raises(ConnectionMissing, match="misspelt"):
            connect()
    assert asked == []


def test_a_connection_for_alerts_stops_a_check_and_no_run(asked: list[str]) -> None:
    without = clusters(alerts={"apprise": "misspelt"})
    with pytest.raises(ConnectionMissing, match="misspelt"):
        without.resolve(alerts=True)
    without.resolve()


def test_the_kind_of_several_errors_is_that_of_one_that_no_retry_can_help() -> None:
    errors: list[ReplicationError] = [Unreachable("a", "wait"), Refused("b", "mend")]
    with pytest.raises(Refused) as raised:
        raise_together(errors)
    assert (raised.value.what, raised.value.remedy) == ("a; b", "wait; mend")
    raise_together([])


@pytest.mark.parametrize("kind", ["nowhere:Target", "pathlib:Nobody", "this_fails_when_imported:Target"])
def test_a_kind_of_target_that_cannot_be_imported_is_named(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: list[str]
) -> None:
    (tmp_path / "this_fails_when_imported.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(BadInput, match=f"the kind of target {kind} cannot be imported"):
        clusters(target={"connection": "other", "type": kind}).connect()
    assert asked == []
