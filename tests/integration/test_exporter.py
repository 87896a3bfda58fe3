"""The exporter as a program, on a store with a run, and a real Prometheus that scrapes it where one is installed."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from kafka_replication.alerting.open_causes import Cause, CauseKey, Kind, Observation, decide
from kafka_replication.model.offsets import OffsetRange, PartitionKey, TopicPartition
from kafka_replication.overview.metrics import Collector, exposition
from kafka_replication.store import open_store
from kafka_replication.watermarks.sight import BYTES, RECORDS, Facts, Lag, Total, Work
from kafka_replication.watermarks.values import RangeOutcome
from stack.ports import free_ports
from tests.support.command_line import Command
from tests.support.status_rows import status_row
from tests.support.tls import Authority
from tests.support.waiting import wait_until

NAME = "orders-dr"
FACTS = Facts(source="kafka_a", target="kafka_b")
KEY = PartitionKey(NAME, TopicPartition("orders", 0), "orders")
GAP = Cause(key=CauseKey(Kind.GAP, "orders"), what="offsets 3 to 9 are lost", remedy="approve the gap")
REPOSITORY = Path(__file__).parents[2]
Values = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


def look(url: str, lag: Lag, *causes: Cause) -> None:
    with closing(open_store(url)) as store:
        store.record_standing(NAME, FACTS, lag, [status_row(lag=lag.records)])
        store.update_causes(NAME, lambda open_, now: decide(open_, Observation(causes=causes), now))


def run(url: str, run_id: str, records: int, error: str | None = None) -> None:
    """A run that ends now."""
    outcome = RangeOutcome(
        run_id=run_id,
        key=KEY,
        range=OffsetRange(0, records),
        copied=records,
        not_visible=0,
        digest_ok=not error,
        level="digest",
        watermark=records,
        bytes=10 * records,
        error=error,
    )
    with closing(open_store(url)) as store:
        store.start_run(run_id, NAME, "live", f"plan of {run_id}")
        store.record_outcomes([outcome])
        store.add_totals(NAME, {Total(RECORDS): float(records), Total(BYTES): 10.0 * records}, run_id, 0.5)
        ended = store.finish_run(run_id, "failed" if error else "done")
        at = ended.finished_at or datetime.now(UTC)
        store.record_work(NAME, FACTS, Work(run_id=run_id, records=records, bytes=10 * records, seconds=2.0, at=at))


@contextmanager
def exporting(folder: Path, url: str, *options: str, **environment: str) -> Iterator[int]:
    """The port of an exporter that is ready."""
    [port] = free_ports(1)
    line = ["exporter", "--port", str(port), *options]
    program = Command(line, {"KAFKA_REPLICATION_STORE_URL": url, **environment}, folder)
    try:
        wait_until(lambda: _listens(port) or program.poll() is not None)
        assert program.poll() is None
        yield port
    finally:
        program.send_signal(signal.SIGTERM)
        program.communicate()


def _listens(port: int) -> bool:
    try:
        httpx.get(f"http://127.0.0.1:{port}/other", trust_env=False)
    except httpx.ConnectError:
        return False
    except httpx.HTTPError:
        return True  # it wants TLS
    return True


def scraped(port: int) -> Values:
    answer = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False)
    assert answer.status_code == 200, answer.text
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def of(values: Values, name: str, **labels: str) -> float | None:
    labels = {"replication": NAME, **labels}
    return values.get((f"kafka_replication_{name}", tuple(sorted(labels.items()))))


def test_a_scrape_has_the_values_of_the_store(tmp_path: Path, url: str) -> None:
    before = datetime.now(UTC).timestamp() - 1
    look(url, Lag(1_234, 60.5), GAP)
    run(url, "run-1", 7)
    with exporting(tmp_path, url, "--by-topic") as port:
        values = scraped(port)
        assert (of(values, "lag_records"), of(values, "lag_seconds")) == (1_234, 60.5)
        assert of(values, "topic_lag_records", topic="orders") == 1_234
        assert of(values, "open_alerts", kind="gap") == 1
        assert (of(values, "state", state="failing"), of(values, "state", state="in sync")) == (1, 0)
        assert (of(values, "last_run_records"), of(values, "last_run_bytes")) == (7, 70)
        assert (of(values, "info", source="kafka_a", target="kafka_b")) == 1
        assert (of(values, "look_timestamp_seconds") or 0) > before
        assert of(values, "last_verified_timestamp_seconds") is None, "no watermark has moved"
        assert (of(values, "records_total"), of(values, "retries_total")) == (7, 0)

        run(url, "run-2", 5)
        run(url, "run-3", 4, error="it is refused")
        for _ in range(2):  # a run is counted once
            values = scraped(port)
            assert (of(values, "records_total"), of(values, "bytes_total")) == (16, 160)
            assert of(values, "runs_total", kind="live", outcome="done") == 2
            assert of(values, "runs_total", kind="live", outcome="failed") == 1
            assert of(values, "ranges_total", outcome="verified") == 2
            assert of(values, "ranges_total", outcome="failed") == 1
    with exporting(tmp_path, url) as port:
        assert of(scraped(port), "records_total") == 16, "another exporter says the same"


@pytest.mark.parametrize(("names", "there"), [(None, True), ({NAME}, True), ({"other"}, False)])
def test_whoever_may_see_some_replications_gets_the_metrics_of_these(
    url: str, names: set[str] | None, there: bool
) -> None:
    look(url, Lag(1, 1.0), GAP)
    run(url, "run-1", 7)
    text = exposition(Collector(lambda: open_store(url), by_topic=True, names=names)).decode()
    assert (NAME in text) == there


def test_a_password_and_tls(tmp_path: Path, url: str) -> None:
    look(url, Lag(0, 0.0))
    authority = Authority(tmp_path, "authority")
    file = authority.issue("exporter")
    with exporting(tmp_path, url, "--certificate", str(file), KAFKA_REPLICATION_METRICS_PASSWORD="pässword") as port:
        trusting = ssl.create_default_context(cafile=str(authority.file))
        with httpx.Client(base_url=f"https://127.0.0.1:{port}", verify=trusting, trust_env=False) as client:
            assert client.get("/metrics").status_code == 401
            assert client.get("/metrics", auth=("prometheus", "wrong")).status_code == 401
            good = client.get("/metrics", auth=httpx.BasicAuth("prometheus", "pässword"))
            assert good.status_code == 200 and "kafka_replication_lag_records" in good.text
            assert client.get("/nothing", auth=httpx.BasicAuth("prometheus", "pässword")).status_code == 404


def test_a_store_that_cannot_be_used_is_no_empty_answer(tmp_path: Path) -> None:
    file = tmp_path / "no-folder"
    file.touch()
    with exporting(tmp_path, f"sqlite:///{file}/store.db") as port:
        answer = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False, timeout=60)
        assert answer.status_code == 503


def test_a_port_that_is_taken_is_told_as_every_command_tells_its_errors(tmp_path: Path, url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        program = Command(["exporter", "--port", str(port)], {"KAFKA_REPLICATION_STORE_URL": url}, tmp_path)
        said = program.communicate()[1]
    assert program.returncode == 2
    error, remedy, see = said.splitlines()[-3:]
    assert error.startswith(f"error: cannot listen on 127.0.0.1:{port}: ")
    assert remedy.startswith("remedy: ") and "--port" in remedy
    assert see.startswith("see: ") and see.endswith("#bad-input")


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="no prometheus here: apt-get install prometheus")
def test_a_rule_fires_on_a_stopped_replication_and_heals(tmp_path: Path, url: str) -> None:
    look(url, Lag(1_234, 7_300.0), GAP)
    rules = _rules()
    for group in rules["groups"]:
        group["interval"] = "1s"
        for rule in group["rules"]:
            rule["for"] = "0s"
    (tmp_path / "rules.yml").write_text(json.dumps(rules))
    with exporting(tmp_path, url) as port, _prometheus(tmp_path, port) as api:
        wait_until(lambda: {"KafkaReplicationFailing", "KafkaReplicationLate"} <= _firing(api))
        assert _query(api, "kafka_replication_lag_records") == 1_234
        look(url, Lag(0, 0.0))
        wait_until(lambda: not _firing(api))


def _rules() -> Any:
    return yaml.safe_load((REPOSITORY / "deploy" / "prometheus" / "kafka-replication.rules.yml").read_text())


@contextmanager
def _prometheus(folder: Path, exporter: int) -> Iterator[str]:
    [port] = free_ports(1)
    (folder / "prometheus.yml").write_text(
        json.dumps(
            {
                "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                "rule_files": [str(folder / "rules.yml")],
                "scrape_configs": [
                    {"job_name": "kafka-replication", "static_configs": [{"targets": [f"127.0.0.1:{exporter}"]}]}
                ],
            }
        )
    )
    line = ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/tsdb"]
    with (folder / "prometheus.log").open("w") as log:
        process = subprocess.Popen([*line, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)
    try:
        yield f"http://127.0.0.1:{port}/api/v1"
    finally:
        process.terminate()
        process.wait()


def _get(api: str, path: str, **params: str) -> Any:
    try:
        return httpx.get(f"{api}/{path}", params=params, trust_env=False).json()["data"]
    except (httpx.ConnectError, ValueError):
        return {}


def _firing(api: str) -> set[str]:
    alerts = _get(api, "alerts").get("alerts", [{"labels": {"alertname": "not up"}, "state": "firing"}])
    return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}


def _query(api: str, expression: str) -> float:
    [only] = _get(api, "query", query=expression)["result"]
    return float(only["value"][1])
