"""The DAG for records that could not be copied, on real Airflow and Kafka: list, discard, retry, to the end. And the
emptied forms of the other DAGs, as the same records are there for them.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from tests.e2e.airflow_home import Airflow, copy
from tests.support.checker import read
from tests.support.clusters import Brokers
from tests.support.scenario import Cluster, Rec, numbered

NAME = f"af-failed-{uuid4().hex[:8]}"  # brokers of one's own keep the topics of the time before
EMPTIED = dict.fromkeys(["action", "topic", "partition", "from", "until", "kind", "state", "by", "reason"])


@pytest.fixture
def records(airflow: Airflow, source_cluster: Brokers, target_cluster: Brokers) -> list[Rec]:
    """Ten records, of which 3 and 7 have no key, so that a compacted topic refuses them; copied into one."""
    source, target = Cluster(source_cluster.bootstrap), Cluster(target_cluster.bootstrap)
    records = numbered(10)
    for place in (3, 7):
        records[place] = Rec(None, b"%d" % place)
    source.create(NAME)
    source.produce(NAME, records)
    target.create(NAME, 1, {"cleanup.policy": "compact"})
    airflow.replicate(NAME, NAME, "failures: {policy: quarantine}\n")
    assert copy(airflow, NAME, source, target) == "done"
    return records


@pytest.mark.slow  # `test_failed_dag.py` runs its task, `test_forms.py` has emptied forms
def test_failed_records_are_listed_discarded_and_retried(
    airflow: Airflow, records: list[Rec], target_cluster: Brokers
) -> None:
    def run(**form: Any) -> tuple[dict[str, Any], str]:
        return airflow.run(f"{NAME}.failed", **form)

    def states(form: dict[str, Any]) -> list[tuple[int, str]]:
        done, log = run(**form)
        assert (done["state"], done["tasks"]) == ("success", {"handle": "success"}), log[-5000:]
        return [(record["offset"], record["state"]) for record in done["handle"]["records"]]

    assert states({}) == states(EMPTIED) == [(3, "quarantined"), (7, "quarantined")]

    refused, log = run(action="retry", by="ann")
    assert refused["state"] == "failed"
    assert "retry needs to know which records" in log

    kept, log = run(action="retry", all=True)  # the target is compacted still
    assert kept["state"] == "failed"
    assert [record["done"] for record in kept["handle"]["records"]] == [False, False], log[-5000:]

    done, log = run(action="discard", topic=NAME, **{"from": 3, "until": 4}, reason="a test record")
    assert done["state"] == "success", log[-5000:]
    Cluster(target_cluster.bootstrap).set(NAME, **{"cleanup.policy": "delete"})
    done, log = run(action="retry", all=True, by="ann")
    assert done["state"] == "success", log[-5000:]
    assert [(record["offset"], record["order_lost"]) for record in done["handle"]["records"]] == [(7, True)]

    assert states({"state": "any"}) == [(3, "discarded"), (7, "retried")]
    _, log = run(action="show", state="any")
    assert "dag_test" in log and "ann" in log, "an empty field Who is the user of Airflow"
    assert [record.value for _, record in read(target_cluster.bootstrap, NAME, 0)] == [
        *(record.value for number, record in enumerate(records) if number not in (3, 7)),
        records[7].value,
    ]
    emptied: dict[str, Any] = {"topic": " ", **dict.fromkeys(["partition", "from", "until"])}
    audited, log = airflow.run(f"{NAME}.audit", **emptied)
    assert (audited["state"], audited["audit"]["outcome"]) == ("success", "clean"), log[-5000:]
    emptied = {"topics": [""], **dict.fromkeys(["partitions", "from", "until", "target_topic"])}
    planned, log = airflow.run(f"{NAME}.backfill", **emptied)
    assert (planned["state"], planned["plan"]["outcome"]) == ("success", "nothing_to_do"), log[-5000:]
    planned, log = airflow.run(NAME, topics=[], until=None, dry_run=True)
    assert (planned["state"], planned["tasks"]["replicate"]) == ("success", "skipped"), log[-5000:]
