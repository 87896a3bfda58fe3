"""The backfill DAG and a replication of data intervals, on real Airflow, Spark and Kafka."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.e2e.airflow_home import Airflow
from tests.support.clusters import Brokers
from tests.support.timed_events import keys, produce

SIX = datetime(2024, 1, 31, 6, tzinfo=UTC)
HOUR = timedelta(hours=1)
ALL_DONE = dict.fromkeys(["plan", "replicate", "report"], "success")


def test_a_backfill_is_planned_copied_and_repeated(
    airflow: Airflow, source_cluster: Brokers, target_cluster: Brokers
) -> None:
    topic = "af-e2e-backfill"
    asked: dict[str, Any] = {"topics": [topic], "from": "100", "until": "250", "dry_run": False}
    produce(source_cluster, topic, [SIX] * 300)
    airflow.replicate("af-backfill", topic, "start_from: latest\nmax_records_per_run: 100\n")

    dry, log = airflow.run("af-backfill.backfill", **{**asked, "dry_run": True})
    assert dry["tasks"] == {"plan": "success", "replicate": "skipped", "report": "skipped"}
    assert (dry["plan"]["offsets_to_copy"], dry["plan"]["estimated_records"]) == (150, 150)
    assert "to copy: 150 offsets of 1 partitions, about 150 records" in log
    assert "spark-submit" not in log

    first, log = airflow.run("af-backfill.backfill", **asked)
    assert (first["state"], first["tasks"]) == ("success", ALL_DONE), log[-5000:]
    [line] = first["report"]["ranges"]
    assert (line["from"], line["until"], line["copied"], line["digest_ok"], line["watermark"]) == (
        100,
        250,
        150,
        True,
        300,
    )
    assert "slice 2: af-e2e-backfill-0 [200, 250); so far 100 of 150 offsets are on the target (66%)" in log
    assert keys(target_cluster, topic) == list(range(100, 250))

    again, log = airflow.run("af-backfill.backfill", **asked)
    assert (again["state"], again["report"]["outcome"]) == ("success", "nothing_to_do")
    assert "spark-submit" not in log and "nothing to do: the target is up to date, and verified" in log

    refused, log = airflow.run("af-backfill.backfill", **{**asked, "until": "301"})
    assert refused["tasks"] == {"plan": "failed", "replicate": "upstream_failed", "report": "upstream_failed"}
    assert "until: 301 lies past the end of af-e2e-backfill-0; allowed are offsets up to 300" in log
    assert airflow.watermarks("af-backfill") == {0: 300}


@pytest.mark.slow
def test_each_data_interval_is_copied_once(airflow: Airflow, source_cluster: Brokers, target_cluster: Brokers) -> None:
    topic = "af-e2e-intervals"
    produce(source_cluster, topic, [SIX - HOUR, SIX, SIX + HOUR / 2, SIX + HOUR, SIX + 1.5 * HOUR, SIX + 2 * HOUR])
    airflow.replicate(
        "af-intervals", topic, f"progress: interval\nschedule: '@hourly'\nstart_from: {SIX.isoformat()}\n"
    )
    first, log = airflow.run("af-intervals", logical_date=(SIX + HOUR).isoformat())
    assert (first["state"], first["tasks"]) == ("success", ALL_DONE), log[-5000:]
    assert keys(target_cluster, topic) == [1, 2]

    second, _ = airflow.run("af-intervals", logical_date=(SIX + 2 * HOUR).isoformat())
    assert [
        (each["from"], each["until"], each["copied"], each["watermark"]) for each in second["report"]["ranges"]
    ] == [(3, 5, 2, 5)]

    cleared, log = airflow.run("af-intervals", logical_date=(SIX + HOUR).isoformat())
    assert (cleared["state"], cleared["tasks"]) == ("success", ALL_DONE)
    assert "spark-submit" not in log
    assert keys(target_cluster, topic) == [1, 2, 3, 4]
