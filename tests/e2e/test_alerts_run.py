"""DAGs run for real: a run that fails tells people through an Airflow notifier and by webhook, and the next one heals it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from kafka_replication.config.names import WATCH_DAG
from stack.ports import LOOPBACK
from tests.e2e.airflow_home import Airflow
from tests.support.clusters import Brokers
from tests.support.received import Inbox, Received, inbox
from tests.support.scenario import Cluster, numbered

NAME, TOPIC = "af-told", "af-told-topic"
ALERTS = """
alerts:
  apprise: oncall
  notifiers:
    - class: airflow.providers.smtp.notifications.smtp.SmtpNotifier
      arguments: {to: oncall@example.org, from_email: airflow@example.org}
"""


@pytest.fixture
def received(airflow: Airflow) -> Iterator[Inbox]:
    """Both servers, with the connections that lead there."""
    with inbox() as servers:
        airflow.environment["AIRFLOW_CONN_ONCALL"] = json.dumps(
            {"conn_type": "apprise", "extra": {"config": {"path": servers.webhook}}}
        )
        airflow.environment["AIRFLOW_CONN_SMTP_DEFAULT"] = json.dumps(
            {
                "conn_type": "smtp",
                "host": LOOPBACK,
                "port": servers.smtp_port,
                "extra": {"disable_ssl": True, "disable_tls": True},
            }
        )
        yield servers


def told(by: list[Received]) -> list[str]:
    return [alert.title.split(":")[0] for alert in by]


@pytest.mark.slow
def test_a_run_that_fails_is_told_once_and_healed_by_a_good_one(
    airflow: Airflow, received: Inbox, source_cluster: Brokers
) -> None:
    file = airflow.replicate(NAME, TOPIC, ALERTS)
    failed, log = airflow.run(NAME)  # there is no such topic
    assert failed["state"] == "failed", log
    assert told(received.mails) == told(received.posts) == [f"ALERT {NAME}"], log
    assert TOPIC in received.mails[0].text and TOPIC in received.posts[0].text
    watched, log = airflow.run(WATCH_DAG)
    assert watched["state"] == "success", log
    assert len(received.mails) == len(received.posts) == 1
    source = Cluster(source_cluster.bootstrap)
    source.create(TOPIC)
    source.produce(TOPIC, numbered(10))
    good, log = airflow.run(NAME)
    assert good["state"] == "success", log
    assert told(received.mails) == told(received.posts) == [f"ALERT {NAME}", f"OVER {NAME}"], log
    file.unlink()
