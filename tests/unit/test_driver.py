"""The Spark driver's entry: what it does before Spark starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_replication.config import Copy
from kafka_replication.spark import driver
from kafka_replication.spark.jobs import JOB, Job


def test_the_file_with_the_client_settings_is_gone_as_soon_as_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "job.json"
    job = Job(kind="copy", replication="orders-dr", run_id="run-1", source={}, target={}, settings=Copy())
    file.write_bytes(JOB.dump_json(job))
    monkeypatch.setattr("sys.argv", ["script", str(file), str(tmp_path / "result.json")])
    with pytest.raises(SystemExit, match="is a copy job, not a verify job"):
        driver.main("verify")
    assert list(tmp_path.iterdir()) == []
