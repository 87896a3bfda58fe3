"""What `check` says about Spark without starting it."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from kafka_replication.config import Copy
from kafka_replication.connections import SparkConnection
from kafka_replication.spark import jobs, reach
from stack.ports import free_ports


def said(master: str) -> list[str]:
    return [finding.what for finding in reach.check(SparkConnection(master, {}), Copy())]


def test_this_machine_can_run_spark() -> None:
    assert said("local[*,4]") == []


def test_a_master_that_listens_is_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert said(f"spark://127.0.0.1:{port}") == []
        (closed,) = free_ports(1)
        assert said(f"spark://127.0.0.1:{closed},127.0.0.1:{port}") == [], "one of two masters is enough"


@pytest.mark.parametrize("scheme", ["spark://", "k8s://https://"])
def test_a_master_that_does_not_listen_is_named(scheme: str) -> None:
    (port,) = free_ports(1)
    (what,) = said(f"{scheme}127.0.0.1:{port}")
    assert f"127.0.0.1:{port}" in what and "does not answer" in what


def test_a_worker_module_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "NEEDED", ("confluent_kafka", "not_there_at_all"))
    (what,) = said("local[*,4]")
    assert "not_there_at_all" in what


@pytest.mark.parametrize("module", ["kio", "crc32c", "scramp", "lz4", "cramjam", "zstandard"])
def test_a_module_of_the_batch_engine_is_missed_where_that_copies(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)  # as if it were not installed
    local = SparkConnection("local[*,4]", {})
    assert list(reach.check(local, Copy(engine="record"))) == []
    found = list(reach.check(local, Copy(engine="batch")))
    assert found and f"the workers cannot import {module}" in found[0].what


def test_a_transform_that_only_this_process_can_import_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Airflow can import what lies in its folder of plugins, and Spark's workers cannot."""
    (tmp_path / "only_here.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    local = SparkConnection("local[*,4]", {})
    (found,) = reach.check(local, Copy(), ["only_here", "json"])
    assert found.severity == "error" and "the workers cannot import only_here: ModuleNotFoundError" in found.what
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert list(reach.check(local, Copy(), ["only_here"])) == []


def test_java_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert said("local[*,4]") == ["no Java was found, which spark-submit needs"]
