"""Airflow's API server on a store that has something to show, and who may log in to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

import httpx

from kafka_replication.alerting.decide import decide
from kafka_replication.alerting.values import Cause, CauseKey, Kind, Observation
from kafka_replication.ledger.entries import FailedRecord
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.model.times import now
from kafka_replication.orchestration.plugin import PREFIX
from kafka_replication.store import open_store
from kafka_replication.watermarks.failed import QUARANTINED, FailedRow, Step
from stack.ports import LOOPBACK, free_ports
from tests.e2e.airflow_home import REPOSITORY, Airflow
from tests.e2e.auth_of_one_dag import ONLY
from tests.support.scenario import Cluster, numbered
from tests.support.waiting import wait_until

ONE, TWO = (f"page-{number}-{uuid4().hex[:6]}" for number in ("one", "two"))
PARTITIONS, RECORDS = 2, 300
PASSWORD = "correct-horse"
REMEDY = "give it more partitions"


@dataclass(frozen=True, slots=True)
class Server:
    """Airflow's API server on the store of the other tests, with two replications that it knows."""

    url: str
    airflow: Airflow

    def token(self, user: str) -> str:
        login = {"username": user, "password": PASSWORD}
        return str(httpx.post(f"{self.url}/auth/token", json=login, trust_env=False).json()["access_token"])

    def as_user(self, user: str | None) -> httpx.Client:
        """What a browser of this user sends: the cookie of the login; of nobody, if the user is None."""
        cookies = {"_token": self.token(user)} if user else {}
        return httpx.Client(base_url=self.url, cookies=cookies, timeout=60, trust_env=False)

    def page(self, path: str, user: str | None = "admin") -> httpx.Response:
        with self.as_user(user) as client:
            return client.get(f"{PREFIX}/{path}", follow_redirects=True)


@contextmanager
def served(airflow: Airflow, source: Cluster, folder: Path) -> Iterator[Server]:
    """Airflow's API server, with its log and its users' passwords in this folder."""
    for name in (ONE, TWO):
        source.create(name, PARTITIONS)
        for partition in range(PARTITIONS):
            source.produce(name, numbered(RECORDS), partition)
    airflow.replicate(ONE, ONE, chunk=100)
    airflow.replicate(TWO, TWO, "dags:\n  repair: true\n")
    fill(airflow)
    users = {"admin": "admin", "viewer": "viewer", f"{ONLY}{ONE}": "user"}
    passwords = folder / "passwords.json"
    passwords.write_text(json.dumps(dict.fromkeys(users, PASSWORD)))
    [port] = free_ports(1)
    url = f"http://{LOOPBACK}:{port}"
    environment = airflow.environment | {
        "AIRFLOW__CORE__AUTH_MANAGER": "tests.e2e.auth_of_one_dag.AuthOfOneDag",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(f"{name}:{role}" for name, role in users.items()),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords),
        "AIRFLOW__API__BASE_URL": url,
        "PYTHONPATH": os.pathsep.join([airflow.environment["PYTHONPATH"], str(REPOSITORY)]),
    }
    line = [sys.executable, "-m", "airflow"]
    subprocess.run([*line, "dags", "reserialize"], env=environment, check=True, capture_output=True)
    with (folder / "api-server.log").open("w") as log:
        command = [*line, "api-server", "--host", LOOPBACK, "--port", str(port), "--workers", "1"]
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        wait_until(lambda: _is_healthy(url) or process.poll() is not None)
        assert process.poll() is None, (folder / "api-server.log").read_text()[-3000:]
        yield Server(url, airflow)
    finally:
        process.terminate()
        process.wait()


def _is_healthy(url: str) -> bool:
    try:
        return httpx.get(f"{url}/api/v2/monitor/health", trust_env=False).is_success
    except httpx.HTTPError:
        return False


def fill(airflow: Airflow) -> None:
    """The first replication copied and was looked at. The second one has an alert and two failed records."""
    file = airflow.folder / "dags" / "replications" / f"{ONE}.yaml"
    done = airflow.command(file)
    said = done.communicate()[1]
    assert done.returncode == 0, said[-3000:]
    look(airflow, ONE)
    key = PartitionKey(TWO, TopicPartition(TWO, 1), TWO)
    cause = Cause(key=CauseKey(Kind.LAG, TWO), what=f"{TWO}-1 is 9 <b>offsets</b> behind", remedy=REMEDY)
    record = FailedRecord(
        offset=7, kind="too_large", reason="it is too large", error="KR-1", size=1, key_digest="", digest="ab"
    )
    rows = [
        FailedRow(
            key=key,
            generation=1,
            record=replace(record, offset=offset),
            history=(Step(now(), QUARANTINED, "run-1"),),
        )
        for offset in (7, 9)
    ]
    with closing(open_store(airflow.environment["KAFKA_REPLICATION_STORE_URL"])) as store:
        store.start_run("cli-1", TWO, "live", "{}")
        store.finish_run("cli-1", "done")
        store.record_failed(rows)
        store.update_causes(TWO, lambda open_, now: decide(open_, Observation(causes=(cause,)), now))
        [told] = store.update_causes(TWO, lambda open_, now: decide(open_, Observation(causes=(cause,)), now)).open
        assert told.claimed_until


def look(airflow: Airflow, name: str) -> None:
    file = airflow.folder / "dags" / "replications" / f"{name}.yaml"
    line = [sys.executable, "-m", "kafka_replication.cli", "watch", str(file), "--once"]
    subprocess.run(line, env=airflow.environment, check=False, capture_output=True)
