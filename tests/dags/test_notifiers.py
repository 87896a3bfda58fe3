"""Notifiers that cannot be used are named by `check`."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from kafka_replication.cli import command_frame
from kafka_replication.config import Replication

SMTP = "airflow.providers.smtp.notifications.smtp.SmtpNotifier"


def found(*entries: dict[str, Any]) -> list[str]:
    document = {"name": "x", "source": {"connection": "a"}, "target": {"connection": "b"}, "topics": {"include": ["t"]}}
    replication = Replication.model_validate({**document, "alerts": {"notifiers": entries}})
    return [finding.what for finding in command_frame.notifier_findings(replication)]


def test_check_names_notifiers_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    strange = {"class": SMTP, "arguments": {"to": "oncall", "colour": "red"}}
    [missing, other, wrong] = found({"class": "no.such.Notifier"}, {"class": "pathlib.Path"}, strange)
    assert "no.such.Notifier cannot be imported" in missing
    assert "pathlib.Path is no Airflow notifier" in other
    assert "colour" in wrong
    monkeypatch.setitem(sys.modules, "airflow.sdk", None)  # as if it were not installed
    [without] = found({"class": SMTP})
    assert "needs Airflow" in without
