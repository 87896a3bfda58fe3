"""A task that a cluster does not let in: the cause in the task's message, and no retry, for nothing heals by waiting."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from tests.dags.test_dag_files import parse
from tests.support.tls import Authority


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "authority")


@pytest.fixture
def broker(authority: Authority) -> Iterator[str]:
    """A port that speaks TLS, with a certificate of the authority. No client that does not know it gets any further."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority.issue("broker"))
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            try:
                with context.wrap_socket(connection, server_side=True) as secure:
                    secure.recv(1000)
            except OSError:
                connection.close()

    thread = threading.Thread(target=serve)
    thread.start()
    yield f"127.0.0.1:{listener.getsockname()[1]}"
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"ssl.ca.location": "/no/such/ca.pem"}, "the file /no/such/ca.pem, which does not exist"),
        ({}, "does not know the authority that issued the broker's certificate"),
    ],
)
def test_the_plan_task_names_the_cause_and_is_not_tried_again(
    dags_folder: Path, monkeypatch: pytest.MonkeyPatch, broker: str, settings: dict[str, str], words: str
) -> None:
    extra = {"bootstrap.servers": broker, "security.protocol": "SSL", **settings}
    for name in ("SOURCE", "TARGET"):
        monkeypatch.setenv(f"AIRFLOW_CONN_KAFKA_{name}", json.dumps({"conn_type": "kafka", "extra": extra}))
    monkeypatch.setenv("KAFKA_REPLICATION_STORE_URL", f"sqlite:///{dags_folder}/store.db")
    dag = parse(dags_folder).dags["orders"]
    plan: Any = dag.get_task("plan")
    params = {"dry_run": True, "topics": [], "until": ""}
    with pytest.raises(AirflowFailException) as failed:
        plan.execute({"dag": dag, "run_id": "r", "ti": plan, "params": params})
    assert f"target {broker} (connection 'kafka_target')" in str(failed.value) and words in str(failed.value)
