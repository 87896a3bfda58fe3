"""Under a real scheduler: what happens to a run in Airflow reaches people by mail, through an Airflow notifier, and by webhook."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kafka_replication.config.names import WATCH_DAG
from kafka_replication.runtime.failpoints import VARIABLE
from stack.airflow_api import FINISHED
from stack.airflow_standalone import AirflowStandalone
from stack.kafka_cluster import KafkaCluster
from stack.ports import LOOPBACK
from tests.e2e.standalone import standalone
from tests.support.clusters import Brokers
from tests.support.received import Inbox, Received, inbox
from tests.support.scenario import Cluster, numbered
from tests.support.waiting import wait_until

NAME = "af-alerts"
RECORDS = 2_000
SMTP = "airflow.providers.smtp.notifications.smtp.SmtpNotifier"
FILE: dict[str, Any] = {
    "name": NAME,
    "topics": {"include": [NAME]},
    "copy": {"chunk_records": 100, "transaction_timeout": 600},
    "retries": {"attempts": 0},
    "alerts": {
        "apprise": "oncall",
        "notifiers": [{"class": SMTP, "arguments": {"to": "oncall@example.org", "from_email": "airflow@example.org"}}],
    },
}


@pytest.fixture
def received() -> Iterator[Inbox]:
    with inbox() as servers:
        yield servers


@contextmanager
def airflow_between(
    source: Brokers, target: Brokers, document: dict[str, Any], folder: Path, received: Inbox, **more: str
) -> Iterator[AirflowStandalone]:
    smtp = {
        "conn_type": "smtp",
        "host": LOOPBACK,
        "port": received.smtp_port,
        "extra": {"disable_ssl": True, "disable_tls": True},
    }
    webhook = {"conn_type": "apprise", "extra": {"config": {"path": received.webhook}}}
    environment = {
        "AIRFLOW_CONN_SMTP_DEFAULT": json.dumps(smtp),
        "AIRFLOW_CONN_ONCALL": json.dumps(webhook),
        **more,
    }
    with standalone(folder, source, target, [document], environment) as started:
        yield started


@pytest.fixture
def airflow(
    tmp_path: Path, gate: Path, received: Inbox, source_cluster: Brokers, target_cluster: Brokers
) -> Iterator[AirflowStandalone]:
    held = {VARIABLE: f"P1:3={gate}"}
    with airflow_between(source_cluster, target_cluster, FILE, tmp_path, received, **held) as started:
        yield started


@pytest.mark.slow
def test_a_dead_source_is_told_at_the_first_failed_try(
    tmp_path: Path, received: Inbox, own_cluster: KafkaCluster, target_cluster: Brokers
) -> None:
    """Once, and its end once, by a run that has tries left."""
    name = "af-dead-source"
    source = Cluster(own_cluster.bootstrap)
    source.create(name)
    source.produce(name, numbered(20))
    more = {"retries": {"attempts": 3}, "timeouts": {"request": 5}, "topics": {"include": [name]}}
    document = {**FILE, "name": name, **more}
    sides = Brokers(own_cluster.bootstrap), target_cluster
    with airflow_between(*sides, document, tmp_path, received) as started, started.api() as api:
        api.wait_for_dag(name)
        api.unpause(name)

        def state_of(run_id: str) -> str:
            wait_until(lambda: api.run_state(name, run_id) in FINISHED)
            return str(api.run_state(name, run_id))

        assert state_of(api.trigger(name)) == "success"
        own_cluster.broker(0).kill()
        try:
            run_id = api.trigger(name)
            wait_until(lambda: bool(received.posts) and bool(received.mails))
            assert api.run_state(name, run_id) == "running"
        finally:
            own_cluster.start()
        assert state_of(run_id) == "success"
        wait_until(lambda: len(received.posts) > 1 and len(received.mails) > 1)
        for told in (received.mails, received.posts):
            assert [alert.title.split(":")[0] for alert in told] == [f"ALERT {name}", f"OVER {name}"]
            assert "kind: cluster-unavailable" in told[0].text and run_id in told[0].text


@pytest.mark.slow
def test_a_run_that_is_marked_failed_is_told_by_the_watch(
    airflow: AirflowStandalone, received: Inbox, source_cluster: Brokers, target_cluster: Brokers
) -> None:
    source, target = Cluster(source_cluster.bootstrap), Cluster(target_cluster.bootstrap)
    source.create(NAME)
    source.produce(NAME, numbered(RECORDS))

    def told(by: list[Received]) -> list[str]:
        return [alert.title.split(":")[0] for alert in by]

    with airflow.api() as api:
        api.wait_for_dag(NAME)
        assert not api.wait_for_dag(WATCH_DAG)["is_paused"]
        api.unpause(NAME)
        run_id = api.trigger(NAME)
        wait_until(lambda: target.size(NAME) > 200)
        api.set_run_state(NAME, run_id, "failed")
        wait_until(lambda: bool(received.mails and received.posts))
        assert told(received.mails) == told(received.posts) == [f"ALERT {NAME}"]
        assert run_id in received.posts[0].text
        assert "kind: run-died" in received.posts[0].text and "kind: run-died" in received.mails[0].text
        assert f"link: {airflow.url}/dags/{NAME}/runs/" in received.posts[0].text
        page = f"{airflow.url}/plugin/replications/kafka-replication/replications/{NAME}"
        assert f"page: {page}\n" in received.posts[0].text
