"""Airflow's notifiers on the command line: an alert arrives as it does from Airflow, and stdout stays the document's."""

from __future__ import annotations

import json
from pathlib import Path

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
        }
        code, out, err = command(scene, "watch", "--once", "--json", **environment)
        [watched] = json.loads(out)["replications"]
        assert (code, [sent["kind"] for sent in watched["sent"]]) == (1, ["gap"]), err
        [mail] = received.mails
        assert scene.topic in mail.title and "approve-gap" in mail.text
        code, _, err = command(scene, "watch", "--once", **environment)
        assert (code, len(received.mails)) == (1, 1), err  # it counts as delivered
        code, out, err = command(scene, "check", "--json", **environment)
        assert [finding for finding in json.loads(out)["findings"] if finding["where"] == "alerts.notifiers"] == [], err
