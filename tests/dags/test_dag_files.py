"""The DAG folder as Airflow parses it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from airflow.dag_processing.dagbag import DagBag

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


def parse(folder: Path) -> DagBag:
    return DagBag(dag_folder=str(folder), safe_mode=True)


def test_each_file_is_one_dag_with_its_backfill_and_audit_and_the_errors_file_is_none(dags_folder: Path) -> None:
    bag = parse(dags_folder)
    assert sorted(bag.dags) == [
        "orders",
        "orders.audit",
        "orders.backfill",
        "payments",
        "payments.audit",
        "payments.backfill",
        "replications.watch",
    ]
    assert bag.import_errors == {}


def test_a_broken_file_leaves_the_others_and_gives_one_error_with_file_line_and_key(dags_folder: Path) -> None:
    (dags_folder / "replications" / "broken.yaml").write_text(GOOD.format(name="broken") + "shedule: '@hourly'\n")
    (dags_folder / "replications" / "worse.yaml").write_text("name: Worse\n")
    bag = parse(dags_folder)
    assert sorted(bag.dags) == [
        "orders",
        "orders.audit",
        "orders.backfill",
        "payments",
        "payments.audit",
        "payments.backfill",
        "replications.watch",
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
        "payments",
        "payments.audit",
        "payments.backfill",
        "replications.watch",
    ]
    [message] = bag.import_errors.values()
    assert "zz.yaml:1: key 'name'" in message


def test_parsing_reads_files_only(dags_folder: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "plugins")}
    done = subprocess.run(
        [sys.executable, "-c", PARSE, str(dags_folder / "replications_dag.py")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    names, has_pyspark = done.stdout.strip().splitlines()[-2:]
    assert json.loads(names.replace("'", '"')) == ["orders", "payments"]
    assert has_pyspark == "False", "importing pyspark takes longer than everything else that parsing does"


def test_a_callback_that_is_not_there_is_one_error_and_leaves_the_others(
    dags_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = dags_folder.parent / "library"
    library.mkdir()
    (library / "night_shift.py").write_text("raise SystemExit('executed while parsing')\n\ndef tell(context): ...\n")
    monkeypatch.syspath_prepend(str(library))
    for name, callback in {
        "good": "night_shift:tell",
        "typo": "night_shift:tel",
        "absent": "no.such.module:tell",
    }.items():
        text = GOOD.format(name=name) + f"alerts: {{callback: '{callback}'}}\n"
        (dags_folder / "replications" / f"{name}.yaml").write_text(text)
    bag = parse(dags_folder)
    names = [f"{name}{suffix}" for name in ("good", "orders", "payments") for suffix in ("", ".audit", ".backfill")]
    assert sorted(bag.dags) == sorted([*names, "replications.watch"])
    [message] = bag.import_errors.values()
    assert "replication typo: key 'alerts.callback': module 'night_shift' defines no 'tel'" in message
    assert "replication absent: key 'alerts.callback': module 'no.such.module' cannot be found" in message


def test_a_notifier_that_is_not_there_is_named(dags_folder: Path) -> None:
    smtp = "airflow.providers.smtp.notifications.smtp"
    for name, notifier in {"good": f"{smtp}.SmtpNotifier", "typo": f"{smtp}.SmtpNotifyer"}.items():
        text = GOOD.format(name=name) + f"alerts: {{notifiers: [{{class: {notifier}}}]}}\n"
        (dags_folder / "replications" / f"{name}.yaml").write_text(text)
    bag = parse(dags_folder)
    assert "good" in bag.dags and "typo" not in bag.dags
    [message] = bag.import_errors.values()
    assert f"key 'alerts.notifiers[0].class': module '{smtp}' defines no 'SmtpNotifyer'" in message


def test_a_callback_has_a_form(dags_folder: Path) -> None:
    (dags_folder / "replications" / "bad.yaml").write_text(
        GOOD.format(name="bad") + "alerts: {callback: oncall.tell}\n"
    )
    [message] = parse(dags_folder).import_errors.values()
    assert "bad.yaml:5: key 'alerts.callback': must read package.module:function" in message
