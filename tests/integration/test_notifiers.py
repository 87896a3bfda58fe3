"""Airflow's notifiers on the command line: an alert arrives as it does from Airflow, and what cannot be used is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kafka_replication.alerting.memory import STATE_FOLDER
from kafka_replication.cli import notifiers
from kafka_replication.config import Replication
from stack.ports import LOOPBACK
from tests.support.actions import copied_once
from tests.support.command_line import command
from tests.support.received import inbox
from tests.support.scenario import Scenario, numbered

SMTP = "airflow.providers.smtp.notifications.smtp.SmtpNotifier"
TO_ONCALL = {"class": SMTP, "arguments": {"to": "oncall@example.org", "from_email": "airflow@example.org"}}


def test_a_notifier_tells_from_the_command_line_and_prints_nothing_there(scene: Scenario, tmp_path: Path) -> None:
    scene.settings |= {"alerts": {"notifiers": [TO_ONCALL]}}
    copied_once(scene)
    scene.source.produce(scene.topic, numbered(20, 50))
    scene.source.delete_before(scene.topic, 0, 60)
    with inbox() as received:
        smtp = {
            "conn_type": "smtp",
            "host": LOOPBACK,
            "port": received.smtp_port,
            "extra": {"disable_ssl": True, "disable_tls": True},
        }
        environment = {
            "AIRFLOW_CONN_SMTP_DEFAULT": json.dumps(smtp),
            "AIRFLOW_HOME": str(tmp_path / "airflow"),
            STATE_FOLDER: str(tmp_path / "state"),
        }
        code, out, err = command(scene, "watch", "--once", "--json", **environment)
        [watched] = json.loads(out)["replications"]
        assert (code, [sent["kind"] for sent in watched["sent"]]) == (1, ["gap"]), err
        [mail] = received.mails
        assert scene.topic in mail.title and "approve-gap" in mail.text
        code, _, err = command(scene, "watch", "--once", **environment)
        assert (code, len(received.mails)) == (1, 1), err  # it counts as delivered


def found(*entries: dict[str, Any]) -> list[str]:
    document = {"name": "x", "source": {"connection": "a"}, "target": {"connection": "b"}, "topics": {"include": ["t"]}}
    replication = Replication.model_validate({**document, "alerts": {"notifiers": entries}})
    return [finding.what for finding in notifiers.findings(replication)]


def test_check_names_notifiers_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugins = str(Path(notifiers.__file__).parents[2])
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "airflow"))
    monkeypatch.setenv("PYTHONPATH", plugins)
    strange = {"class": SMTP, "arguments": {"to": "oncall", "colour": "red"}}
    [missing, other, wrong] = found({"class": "no.such.Notifier"}, {"class": "pathlib.Path"}, strange)
    assert "no.such.Notifier cannot be imported" in missing
    assert "pathlib.Path is no Airflow notifier" in other
    assert "colour" in wrong
    (tmp_path / "airflow.py").write_text("raise ModuleNotFoundError('there is no Airflow')")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{plugins}")
    [without] = found(TO_ONCALL)
    assert "needs Airflow" in without


def test_a_notifier_whose_process_ends_without_an_answer_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "airflow.py").write_text("raise SystemExit('out of order')")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(notifiers.__file__).parents[2]}")
    [what] = found(TO_ONCALL)
    assert "out of order" in what
