"""Airflow's API server on a store that has something to show."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kafka_replication.alerting.open_causes import Cause, CauseKey, Kind, Observation, decide
from kafka_replication.ledger.entries import FailedRecord
from kafka_replication.model.offsets import PartitionKey, TopicPartition
from kafka_replication.model.times import now
from kafka_replication.store import open_store
from kafka_replication.watermarks.failed import QUARANTINED, FailedRow, Step
from kafka_replication.web import PREFIX
from stack.airflow_api import PatientClient
from tests.e2e.airflow_home import REPOSITORY, Airflow, copy
from tests.e2e.api_server import Server, log_in, serving
from tests.e2e.auth_of_one_dag import ONLY
from tests.support import browser as browsers
from tests.support.browser import Browser
from tests.support.clusters import Brokers
from tests.support.scenario import Cluster, numbered

ONE, TWO = (f"page-{number}-{uuid4().hex[:6]}" for number in ("one", "two"))
PARTITIONS, RECORDS = 2, 300
REMEDY = "give it more partitions"
# NAME stands for a replication: the names of tests must be the same in all processes.
TABS = ["of/NAME", "of/NAME/manual__1"]
PAGES = ["", *(f"replications/NAME{part}" for part in ("", "/live", "/partitions", "/runs", "/run?run_id=x"))]
PAGES += ["replications/NAME/partition?topic=NAME&partition=0&target=NAME", "replications/NAME/certificates/x.html"]


@contextmanager
def served(airflow: Airflow, source: Cluster, target: Cluster, folder: Path) -> Iterator[Server]:
    """Airflow's API server, with its log and its users' passwords in this folder."""
    for name in (ONE, TWO):
        source.create(name, PARTITIONS)
        for partition in range(PARTITIONS):
            source.produce(name, numbered(RECORDS), partition)
    airflow.replicate(ONE, ONE, chunk=100)
    airflow.replicate(TWO, TWO)
    fill(airflow, source, target)
    users = {"admin": "admin", "viewer": "viewer", f"{ONLY}{ONE}": "user", f"{ONLY}nothing": "user"}
    with serving(airflow, folder, users) as server:
        yield server


def fill(airflow: Airflow, source: Cluster, target: Cluster) -> None:
    """The first replication copied and was looked at. The second one has an alert and two failed records."""
    assert copy(airflow, ONE, source, target) == "done"
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
        [told] = store.update_causes(TWO, lambda open_, now: decide(open_, Observation(causes=(cause,)), now)).open
        assert told.announced_at


def look(airflow: Airflow, name: str) -> None:
    file = airflow.folder / "dags" / "replications" / f"{name}.yaml"
    line = [sys.executable, "-m", "kafka_replication.cli", "watch", str(file), "--once"]
    subprocess.run(line, env=airflow.environment, check=False, capture_output=True)


def runs_of(server: Server, dag_id: str) -> list[dict[str, Any]]:
    with server.as_user("admin") as client:
        return list(client.get(f"/api/v2/dags/{dag_id}/dagRuns").json()["dag_runs"])


def scraped(server: Server, user: str, path: str = "metrics") -> tuple[int, dict[str, float]]:
    """The status of a scrape with this user's token, and its samples that have no label but the replication."""
    token = {"Authorization": f"Bearer {server.token(user)}"}
    with PatientClient(server.url, timeout=60) as client:
        answer = client.get(f"{PREFIX}/{path}", headers=token)
    if not answer.is_success:
        return answer.status_code, {}
    families = list(text_string_to_metric_families(answer.text))
    return 200, {
        f"{sample.labels['replication']} {sample.name.removeprefix('kafka_replication_')}": sample.value
        for family in families
        for sample in family.samples
        if sample.labels.keys() == {"replication"}
    }


def clicks_of_docs() -> list[tuple[str, int, list[str]]]:
    """What docs/page.md says: to see or do this, so many clicks, on these."""
    text = (REPOSITORY / "docs" / "page.md").read_text().partition("## Clicks")[2].partition("\n## ")[0]
    found = re.findall(r"^\| ([^|]+) \| \d[^|]+ \| (\d): ([^|]+) \|$", text, re.MULTILINE)
    return [(what, int(number), on.split(", ")) for what, number, on in found]


@pytest.fixture(scope="module")
def sides(source_cluster: Brokers, target_cluster: Brokers) -> tuple[Cluster, Cluster]:
    return Cluster(source_cluster.bootstrap), Cluster(target_cluster.bootstrap)


@pytest.fixture(scope="module")
def server(
    airflow: Airflow, sides: tuple[Cluster, Cluster], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    with served(airflow, *sides, tmp_path_factory.mktemp("server")) as server:
        yield server


needs_a_browser = pytest.mark.skipif(browsers.MISSING is not None, reason=str(browsers.MISSING))


@pytest.fixture(scope="module")
def browser(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browsers.started(tmp_path_factory.mktemp("browser")) as window:
        window.size(1280, 900)
        log_in(window, server, "admin")
        yield window
