"""What a run would refuse, `check` and `plan` say before, and change nothing."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any

import pytest

from kafka_replication.runs import checking, steps
from kafka_replication.runs.run import Request, open_run
from tests.support.command_line import command
from tests.support.scenario import Scenario, numbered


def errors(scene: Scenario, **more: Any) -> list[str]:
    run = open_run(scene.replication(**more), scene.connections, scene.store, "check")
    return [f"{found.where}: {found.what}" for found in checking.check(run).findings if found.severity == "error"]


@pytest.fixture
def filled(scene: Scenario) -> Scenario:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(20))
    return scene


def test_records_of_others_on_the_target_are_found_before_the_first_run(filled: Scenario) -> None:
    filled.target.create(filled.topic)
    assert errors(filled) == []
    filled.target.produce(filled.topic, numbered(1))
    (found,) = errors(filled)
    assert "already holds records" in found and "offset 0" in found
    plan, _ = steps.preview(filled.bare_run(), Request())
    assert [refused.what for refused in plan.refused] == [found.split(": ", 1)[1]]
    assert errors(filled, on_existing_target="append") == []
    assert filled.bare_run().view().positions == {}, "nothing was opened"


def test_a_topic_that_the_target_would_not_create_is_found(filled: Scenario) -> None:
    found = errors(filled, target_topics={"replication_factor": 9})
    assert any(f"creating topic {filled.topic}" in one for one in found), found


def test_append_does_not_pass_over_a_topic_of_another_replication(filled: Scenario) -> None:
    assert filled.run().outcome == "done"
    first, filled.name = filled.name, f"{filled.name}-second"
    (found,) = errors(filled, on_existing_target="append")
    assert f"belongs to the replication {first}" in found
    report = filled.run(on_existing_target="append")
    assert report.outcome == "failed"
    assert first in report.table()
    assert filled.target.size(filled.topic) == filled.source.size(filled.topic) + 1, "one marker; nothing was added"


def test_a_check_fences_no_run(filled: Scenario) -> None:
    """It asks for a producer id of its own, while a copier of the same replication is inside a transaction."""
    run = filled.bare_run()
    with closing(run.clusters.target.session(filled.key())) as session:
        session.fence()
        session.transaction.begin()
        assert errors(filled) == []
        session.transaction.commit()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "the same cluster"),
        ({"topics": {"include": ["^nothing-matches-this"]}}, "no topic of the source is selected"),
        ({"topics": {"include": ["^it-.*"], "rename": "it-x.{topic}"}}, "selected"),
    ],
    ids=["one cluster", "no match", "a loop"],
)
def test_plan_and_check_end_with_1_where_a_run_refuses(filled: Scenario, settings: dict[str, Any], said: str) -> None:
    filled.settings |= settings
    at_source = json.dumps({"conn_type": "kafka", "extra": {"bootstrap.servers": filled.source.bootstrap}})
    for name in ("plan", "check"):
        code, out, err = command(filled, name, "--json", AIRFLOW_CONN_TARGET=at_source)
        assert code == 1, err
        assert any(said in finding["what"] for finding in json.loads(out)["findings"]), out


def test_status_says_what_a_run_refuses_to_open(filled: Scenario) -> None:
    filled.target.create(filled.topic)
    filled.target.produce(filled.topic, numbered(3))
    assert filled.run().outcome == "failed"
    code, out, err = command(filled, "status", "--json")
    (row,) = json.loads(out)["partitions"]
    assert (code, row["state"]) == (1, "could not be opened"), out + err
    assert "already holds records (the first at offset 0)" in row["error"] and "append" in row["remedy"]
    filled.settings |= {"on_existing_target": "append"}
    code, out, err = command(filled, "status", "--json")
    assert (code, json.loads(out)["partitions"][0]["state"]) == (0, "not opened yet"), out + err


def test_verify_does_not_call_copies_of_a_topic_right_that_is_another_one_now(filled: Scenario) -> None:
    assert filled.run().outcome == "done"
    filled.source.delete(filled.topic)
    filled.source.create(filled.topic)
    code, out, err = command(filled, "verify", "--json")
    assert code == 1, out + err
    (row,) = json.loads(out)["ranges"]
    assert "re-created" in row["error"] and row["remedy"], row


def test_spark_is_started_and_a_worker_imports_its_code_if_wanted(filled: Scenario) -> None:
    code, out, err = command(filled, "check", "--spark")
    assert (code, "ok: " in out) == (0, True), out + err
    code, out, err = command(filled, "check", "--spark", PYSPARK_PYTHON="/not/a/python")
    assert code == 1 and "error: Spark local" in out, out + err
    assert "a Spark executor cannot start its Python" in out and "PYSPARK_PYTHON" in out and "memory" not in out, out


def test_a_misspelt_connection_is_bad_input_and_no_cluster_is_asked(filled: Scenario) -> None:
    filled.settings |= {"target": {"connection": "misspelt"}}
    nobody = json.dumps({"conn_type": "kafka", "extra": {"bootstrap.servers": "127.0.0.1:1"}})
    code, out, _ = command(filled, "check", "--json", AIRFLOW_CONN_SOURCE=nobody)
    assert code == 2
    assert "misspelt" in json.loads(out)["error"]


def test_both_clusters_that_are_away_are_named(filled: Scenario) -> None:
    filled.settings |= {"timeouts": {"request": 2}}
    away = {
        f"AIRFLOW_CONN_{side}": json.dumps({"conn_type": "kafka", "extra": {"bootstrap.servers": f"127.0.0.1:{port}"}})
        for side, port in (("SOURCE", 1), ("TARGET", 2))
    }
    code, out, _ = command(filled, "check", "--json", **away)
    assert code == 1
    assert {"127.0.0.1:1", "127.0.0.1:2"} <= set(json.loads(out)["error"].replace(";", " ").split())
    assert [one["severity"] for one in json.loads(out)["findings"]].count("error") == 2


def test_the_store_is_looked_at_and_none_is_made(filled: Scenario) -> None:
    nowhere = filled.folder / "none" / "store.db"
    code, out, err = command(filled, "check", KAFKA_REPLICATION_STORE_URL=f"sqlite:///{nowhere}")
    assert code == 0 and "none is made" in err, out + err
    assert "schema version" not in err and not nowhere.parent.exists()
    code, out, _ = command(filled, "check", "--json", KAFKA_REPLICATION_STORE_URL="sqlite:////dev/null/folder/store.db")
    [found] = [one for one in json.loads(out)["findings"] if one["severity"] == "error"]
    assert code == 1 and "/dev/null/folder cannot be made (Not a directory)" in found["what"]


def test_a_plan_without_a_topic_says_the_error_alone(filled: Scenario) -> None:
    filled.settings |= {"topics": {"include": ["^nothing-matches-this"]}}
    code, out, err = command(filled, "plan")
    assert code == 1, err
    assert [line for line in out.splitlines() if not line.startswith("warning: ")] == [
        f"error: {filled.name}: no topic of the source is selected. Remedy: correct topics.include and topics.exclude"
    ]
