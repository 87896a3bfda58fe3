"""The DAG folder as Airflow parses it."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.exceptions import AirflowFailException
from airflow.serialization.serialized_objects import DagSerialization

from kafka_replication.config.names import TURN_SUFFIX
from kafka_replication.orchestration.airflow import BY_HAND
from tests.dags.conftest import GOOD, REPOSITORY

# Whatever opens a socket, a database or a process while a DAG file is executed, ends it.
PARSE = """
import runpy, sys
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG
import kafka_replication.orchestration.dag_factory
with DAG("first"):  # what Airflow itself does once, as it makes its first DAG, is not ours
    SparkSubmitOperator(task_id="first")
def forbid(event, args):
    if event in ("socket.connect", "socket.getaddrinfo", "sqlite3.connect", "subprocess.Popen"):
        raise SystemExit(f"{event} {args} while parsing")
sys.addaudithook(forbid)
found = runpy.run_path(sys.argv[1])
print(sorted(name for name, value in found.items() if isinstance(value, DAG)))
print("pyspark" in sys.modules)
"""

# What every DAG file imports besides Airflow's own modules.
IMPORTS = """
import json, runpy, sys
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG
with DAG("first"):
    SparkSubmitOperator(task_id="first")
airflows = set(sys.modules)
for file in sys.argv[1:]:
    runpy.run_path(file)
print(json.dumps(sorted(set(sys.modules) - airflows)))
"""
READING = {
    "config",
    "connections",
    "model",
    "orchestration",
    "planning",
    "runtime",
}  # the packages that a file is read with
HEAVY = {"alembic", "apprise", "confluent_kafka", "psycopg", "pyspark", "requests", "sqlalchemy"}


def parse(folder: Path) -> DagBag:
    return DagBag(dag_folder=str(folder), safe_mode=True)


def test_each_file_is_one_dag_with_its_backfill_and_audit_and_the_errors_file_is_none(dags_folder: Path) -> None:
    bag = parse(dags_folder)
    assert sorted(bag.dags) == [
        "orders",
        "orders.audit",
        "orders.backfill",
        "orders.drill",
        "orders.failed",
        "orders.repair",
        "orders.turn",
        "payments",
        "payments.audit",
        "payments.backfill",
        "payments.drill",
        "payments.failed",
        "payments.repair",
        "payments.turn",
        "replications.watch",
    ]
    assert bag.import_errors == {}


def test_a_broken_file_leaves_the_others_and_gives_one_error_with_file_line_and_key(dags_folder: Path) -> None:
    (dags_folder / "replications" / "broken.yaml").write_text(GOOD.format(name="broken") + "shedule: '@hourly'\n")
    (dags_folder / "replications" / "worse.yaml").write_text("name: Worse\n")
    bag = parse(dags_folder)
    assert sorted(bag.dags) == [
        "broken",
        "orders",
        "orders.audit",
        "orders.backfill",
        "orders.drill",
        "orders.failed",
        "orders.repair",
        "orders.turn",
        "payments",
        "payments.audit",
        "payments.backfill",
        "payments.drill",
        "payments.failed",
        "payments.repair",
        "payments.turn",
        "replications.watch",
        "worse",
    ]
    [(file, message)] = bag.import_errors.items()
    assert file.endswith("replication_import_errors.py")
    assert f"{dags_folder / 'replications' / 'broken.yaml'}:5: key 'shedule'" in message
    assert "worse.yaml:1: key 'name'" in message


def test_the_file_of_a_second_replication_of_one_name_is_the_broken_one(dags_folder: Path) -> None:
    (dags_folder / "replications" / "zz.yaml").write_text(GOOD.format(name="orders"))
    bag = parse(dags_folder)
    assert sorted(bag.dags) == [
        "orders",
        "orders.audit",
        "orders.backfill",
        "orders.drill",
        "orders.failed",
        "orders.repair",
        "orders.turn",
        "payments",
        "payments.audit",
        "payments.backfill",
        "payments.drill",
        "payments.failed",
        "payments.repair",
        "payments.turn",
        "replications.watch",
    ]
    [message] = bag.import_errors.values()
    assert "zz.yaml:1: key 'name'" in message


def test_parsing_reads_files_only(dags_folder: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "plugins")}
    done = subprocess.run(
        [sys.executable, "-c", PARSE, str(dags_folder / "kafka_replication_dags.py")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    names, has_pyspark = done.stdout.strip().splitlines()[-2:]
    assert json.loads(names.replace("'", '"')) == sorted(parse(dags_folder).dags)
    assert has_pyspark == "False", "importing pyspark takes longer than everything else that parsing does"


def test_a_dag_file_imports_nothing_that_only_a_running_task_needs(dags_folder: Path) -> None:
    """Airflow's processor imports each file again and again, and each task imports its own before it starts."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS, *map(str, sorted(dags_folder.glob("*_dags.py")))],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "plugins")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    modules = json.loads(done.stdout.strip().splitlines()[-1])
    assert {name.split(".")[0] for name in modules} & HEAVY == set()
    ours = {name.split(".")[1] for name in modules if name.startswith("kafka_replication.")}
    assert ours - READING == set()


def test_a_notifier_that_is_not_there_is_one_error_and_leaves_the_others(
    dags_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = dags_folder.parent / "library"
    library.mkdir()
    (library / "night_shift.py").write_text("raise SystemExit('executed while parsing')\n\nclass Tell: ...\n")
    monkeypatch.syspath_prepend(str(library))
    for name, notifier in {
        "good": "night_shift.Tell",
        "typo": "night_shift.Tel",
        "absent": "no.such.module.Tell",
    }.items():
        text = GOOD.format(name=name) + f"alerts: {{notifiers: [{{class: {notifier}}}]}}\n"
        (dags_folder / "replications" / f"{name}.yaml").write_text(text)
    bag = parse(dags_folder)
    names = [
        f"{name}{suffix}"
        for name in ("good", "orders", "payments")
        for suffix in ("", ".audit", ".backfill", ".drill", ".failed", ".repair", ".turn")
    ]
    assert sorted(bag.dags) == sorted([*names, "absent", "replications.watch", "typo"])
    [message] = bag.import_errors.values()
    key = "key 'alerts.notifiers[0].class'"
    assert f"replication typo: {key}: module 'night_shift' defines no 'Tel'" in message
    assert f"replication absent: {key}: module 'no.such.module' cannot be found" in message


def test_a_notifier_has_a_form(dags_folder: Path) -> None:
    (dags_folder / "replications" / "bad.yaml").write_text(
        GOOD.format(name="bad") + "alerts: {notifiers: [{class: 'oncall:Tell'}]}\n"
    )
    [message] = parse(dags_folder).import_errors.values()
    assert "bad.yaml:5: key 'alerts.notifiers[0].class': must read package.module.Class" in message


NIGHT_SHIFT = """\
from airflow.sdk import BaseNotifier

told = []

class Tell(BaseNotifier):
    def notify(self, context):
        told.append(context["alert"])
"""
RUNNING = GOOD + "schedule: '*/2 * * * *'\nalerts: {{notifiers: [{{class: night_shift.Tell}}]}}\ntags: [dr]\n"
MISTAKES = [
    ("targt_topics: {create: false}\n", "key 'targt_topics': unknown key"),
    ("copy: {chunk_records: many}\n", "key 'copy.chunk_records'"),
    ("copy: {chunk_records: 1\n", "not valid YAML"),
    ("alerts: {apprise: x}\n", "key 'alerts': given twice"),
]


@pytest.mark.parametrize(("mistake", "words"), MISTAKES)
def test_a_mistake_in_the_file_of_a_running_replication_fails_its_runs_and_does_not_end_them(
    dags_folder: Path, monkeypatch: pytest.MonkeyPatch, mistake: str, words: str
) -> None:
    """Same id, schedule, tasks, tags and alerts: Airflow goes on with the DAG, and its next run tells the mistake."""
    monkeypatch.setenv("KAFKA_REPLICATION_STORE_URL", f"sqlite:///{dags_folder}/store.db")
    library = dags_folder.parent / "library"
    library.mkdir()
    (library / "night_shift.py").write_text(NIGHT_SHIFT)
    monkeypatch.syspath_prepend(str(library))
    file = dags_folder / "replications" / "shop.yaml"
    file.write_text(RUNNING.format(name="shop-dr"))
    before = parse(dags_folder).dags["shop-dr"]
    file.write_text(RUNNING.format(name="shop-dr") + mistake)
    bag = parse(dags_folder)
    after = bag.dags["shop-dr"]
    assert (after.schedule, after.tags) == (before.schedule, before.tags)
    assert [task.task_id for task in after.tasks] == [task.task_id for task in before.tasks]
    DagSerialization.deserialize_dag(DagSerialization.serialize_dag(after))
    [message] = bag.import_errors.values()
    plan: Any = after.get_task("plan")
    with pytest.raises(AirflowFailException) as failed:
        plan.execute({})
    for text in (message, str(failed.value), after.doc_md or ""):
        assert f"{file}:" in text and words in text and "docs/configuration.md" in text
    [tell] = plan.on_failure_callback
    tell({"ti": plan, "run_id": "r", "exception": failed.value, "dag": after})
    night_shift = importlib.import_module("night_shift")
    assert words in night_shift.told[-1] and "run airflow-shop-dr-r failed" in night_shift.told[-1]
    monkeypatch.delitem(sys.modules, "night_shift")


def test_a_broken_file_never_takes_the_place_of_a_good_one(dags_folder: Path) -> None:
    (dags_folder / "replications" / "aa.yaml").write_text(GOOD.format(name="orders") + "nonsense: 1\n")
    bag = parse(dags_folder)
    assert type(bag.dags["orders"].get_task("plan")).__name__ == "PlanOperator"
    [message] = bag.import_errors.values()
    assert "aa.yaml:5: key 'nonsense'" in message


def test_the_dags_beside_a_replication_s_own_say_what_they_are_for(dags_folder: Path) -> None:
    bag = parse(dags_folder)
    assert (bag.dags["orders.backfill"].tags, bag.dags["payments.audit"].tags) == (
        {"kafka-replication", "backfill"},
        {"kafka-replication", "audit"},
    )


def test_the_quick_start_lists_every_dag_beside_that_of_a_replication() -> None:
    text = (REPOSITORY / "docs" / "quickstart.md").read_text()
    assert set(re.findall(r"^\| `orders-dr([.]\w+)` \|", text, re.MULTILINE)) == {*BY_HAND, TURN_SUFFIX}
