"""What a failed task tells before Airflow ends its process: at once, without a look at any cluster, within a bound."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG, BaseNotifier

from kafka_replication.config import Replication
from kafka_replication.model.errors import Busy, ReplicationError, Stalled, Unreachable
from kafka_replication.orchestration import tasks, watching
from kafka_replication.orchestration.dag_factory import build_dag
from kafka_replication.orchestration.task_run import failure
from kafka_replication.store import open_store
from kafka_replication.store.watermark_store import WatermarkStore
from stack.ports import LOOPBACK
from tests.support.received import Inbox

NAME = "orders-dr"
given: dict[str, Any] = {}  # what a notifier got
SMTP = "airflow.providers.smtp.notifications.smtp.SmtpNotifier"


@dataclass
class Silent:
    """A server that takes connections and never says anything."""

    port: int
    asked_at: list[float] = field(default_factory=list)


@contextmanager
def silent() -> Iterator[Silent]:
    kept: list[socket.socket] = []
    with socket.create_server((LOOPBACK, 0)) as listening:
        server = Silent(listening.getsockname()[1])

        def take() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                server.asked_at.append(time.monotonic())
                kept.append(connection)

        thread = threading.Thread(target=take, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()
            for connection in kept:
                connection.close()


def kafka(port: int) -> str:
    return json.dumps({"conn_type": "kafka", "extra": {"bootstrap.servers": f"{LOOPBACK}:{port}"}})


@pytest.fixture
def store_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    url = f"sqlite:///{tmp_path}/store.db"
    monkeypatch.setenv("KAFKA_REPLICATION_STORE_URL", url)
    return url


def replication(**more: Any) -> Replication:
    document = {
        "name": NAME,
        "source": {"connection": "kafka_source"},
        "target": {"connection": "kafka_target"},
        "topics": {"include": ["orders"]},
        "alerts": {"apprise": "oncall", **more},
    }
    return Replication.model_validate(document)


AWAY = Unreachable("source does not answer", "start its brokers")


def context_of(task_id: str, error: ReplicationError) -> Any:
    return {
        "dag": DAG(NAME),
        "ti": SimpleNamespace(task_id=task_id),
        "run_id": "manual-1",
        "exception": failure(str(error), retriable=error.retriable, error=error),
    }


def fail(**more: Any) -> None:
    """The callback of the plan task, whose source did not answer."""
    tasks.on_failure(replication(**more), context_of("plan", AWAY))


def try_in_vain(task_id: str, error: ReplicationError) -> None:
    """The callback of a task that failed and is tried again."""
    [callback] = _as_list(build_dag(replication()).get_task(task_id).on_retry_callback)
    callback(context_of(task_id, error))


def _as_list(callbacks: Any) -> list[Any]:
    return list(callbacks) if isinstance(callbacks, list | tuple) else [callbacks] if callbacks else []


class Remembering(BaseNotifier):
    def notify(self, context: Any) -> None:
        given.update(context)


def test_a_dead_cluster_is_told_before_any_cluster_is_asked(
    received: Inbox, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with silent() as cluster:
        monkeypatch.setenv("AIRFLOW_CONN_KAFKA_SOURCE", kafka(cluster.port))
        monkeypatch.setenv("AIRFLOW_CONN_KAFKA_TARGET", kafka(cluster.port))
        monkeypatch.setenv("AIRFLOW_CONN_ONCALL", received.connection)
        monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example.org/")
        given.clear()
        fail(notifiers=[{"class": f"{__name__}.Remembering"}])
        assert cluster.asked_at == []
    link = f"https://airflow.example.org/dags/{NAME}/runs/manual-1"
    page = f"https://airflow.example.org/plugin/replications/kafka-replication/replications/{NAME}"
    for told in (received.mails, received.posts):
        [alert] = told
        assert alert.title == f"ALERT {NAME}: a cluster cannot be reached"
        assert f"airflow-{NAME}-manual-1" in alert.text and "start its brokers" in alert.text
        assert (
            f"link: {link}\npage: {page}\nreplication: {NAME}\nkind: cluster-unavailable\nevent: opened" in alert.text
        )
    [cause] = given["alert_fields"]
    assert (cause["kind"], cause["cause"], cause["link"]) == ("cluster-unavailable", "source does not answer", link)
    store = open_store(store_url)
    assert {row.key.kind.value: bool(row.announced_at) for row in store.open_causes(NAME)} == {
        "cluster-unavailable": True,
        "run-failed": False,
    }
    store.close()


@pytest.mark.parametrize("task_id", ["plan", "replicate"])
def test_a_dead_cluster_is_told_at_the_first_failed_try_and_only_once(
    received: Inbox, store_url: str, monkeypatch: pytest.MonkeyPatch, task_id: str
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_ONCALL", received.connection)
    try_in_vain(task_id, AWAY)
    assert [post.title for post in received.posts] == [f"ALERT {NAME}: a cluster cannot be reached"]
    try_in_vain(task_id, AWAY)
    fail()
    assert len(received.posts) == len(received.mails) == 1


@pytest.mark.parametrize("reason", [Busy("another run works", "wait"), Stalled("a transaction is open", "end it")])
def test_a_failed_try_tells_nothing_else(
    received: Inbox, store_url: str, monkeypatch: pytest.MonkeyPatch, reason: ReplicationError
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_ONCALL", received.connection)
    try_in_vain("plan", reason)
    assert received.posts == received.mails == []


def test_a_channel_that_hangs_holds_up_neither_the_other_ones_nor_the_process(
    received: Inbox, store_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tasks, "TELLING", 6.0)
    with silent() as server:
        smtp = {"conn_type": "smtp", "host": LOOPBACK, "port": server.port}
        monkeypatch.setenv("AIRFLOW_CONN_SMTP_DEFAULT", json.dumps(smtp))
        monkeypatch.setenv("AIRFLOW_CONN_ONCALL", received.connection)
        fail(notifiers=[{"class": SMTP, "arguments": {"to": "oncall@example.org", "from_email": "a@example.org"}}])
    assert len(received.mails) == len(received.posts) == 1
    told = [record.getMessage() for record in caplog.records if record.name.endswith("alerting.telling")]
    assert "sent by apprise connection 'oncall'" in told[0]
    assert f"not delivered by notifier {SMTP}" in told[1]


def test_a_store_that_hangs_does_not_keep_an_alert_back(
    received: Inbox, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "TELLING", 6.0)
    with silent() as server:
        monkeypatch.setenv("KAFKA_REPLICATION_STORE_URL", f"postgresql+psycopg://u:p@{LOOPBACK}:{server.port}/x")
        monkeypatch.setenv("AIRFLOW_CONN_ONCALL", received.connection)
        fail()
    [post] = received.posts
    assert "the watermark store does not answer" in post.text and "source does not answer" in post.text


def test_a_store_that_answers_too_late_remembers_nothing_as_told(
    received: Inbox, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The alert went out without it: a cause that counts as told would be told to nobody for a day."""
    monkeypatch.setenv("AIRFLOW_CONN_ONCALL", received.connection)
    late, before = threading.Event(), set(threading.enumerate())

    def slow() -> WatermarkStore:
        late.wait()
        return open_store(store_url)

    other = replication().model_copy(update={"name": "late-dr"})  # this process remembers what it told of each
    replace(watching.watcher(other, {}, 2.0), open_store=slow).tell(AWAY, "cli-1")
    [thread] = [thread for thread in {*threading.enumerate()} - before if thread.name == "store"]
    late.set()
    thread.join()
    with closing(open_store(store_url)) as store:
        assert store.open_causes("late-dr") == []


def test_a_look_after_a_good_run_ends_before_airflow_ends_the_task(
    store_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tasks, "ENDING", 1.0)
    context: Any = {"dag": SimpleNamespace(dag_id=NAME), "ti": SimpleNamespace(task_id="report"), "run_id": "manual-1"}
    with silent() as server:
        monkeypatch.setenv("KAFKA_REPLICATION_STORE_URL", f"postgresql+psycopg://u:p@{LOOPBACK}:{server.port}/x")
        tasks.on_success(replication(), context)
        left = [thread.name for thread in threading.enumerate() if thread.name == "telling"]
    assert left and "is left behind" in caplog.text


@pytest.mark.slow
def test_what_sends_an_alert_is_loaded_before_the_task_has_failed() -> None:
    """Afterwards the seconds count, and on a busy machine loading takes as many as there are."""
    program = """
import sys
from kafka_replication.model.errors import BadInput
from kafka_replication.orchestration.task_run import failing
try:
    with failing():
        raise BadInput("nothing works", "")
except Exception:
    print(*(name for name in sys.modules if name.startswith("apprise.plugins.")))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert {"apprise.plugins.custom_json", "apprise.plugins.email"} <= set(done.stdout.split())
