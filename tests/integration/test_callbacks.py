"""A target that asks for OAUTHBEARER: the connection names its token's function by a dotted path, and the job takes it along."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka_replication.connections.definition import ALLOWLIST_VARIABLE
from kafka_replication.connections.environment import EnvironmentConnections
from kafka_replication.model.errors import BadInput
from kafka_replication.runs import runner
from kafka_replication.runs.run import Request
from kafka_replication.spark.jobs import JOB, Job, JobEnd
from kafka_replication.spark.launcher import Deliver
from stack.kafka_cluster import KafkaCluster
from tests import oauth
from tests.support.clusters import started
from tests.support.jobs import InProcess, no_launch
from tests.support.scenario import Rec, Scenario

# The only client listener. Without a validator class of its own, a broker takes unsigned tokens.
OAUTHBEARER = {
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",  # named, so that its protocol is looked up in the map
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
    "listener.name.plaintext.oauthbearer.sasl.jaas.config": (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
        ' unsecuredLoginStringClaim_sub="broker";'
    ),
}


@pytest.fixture(scope="module")
def bearer_target(stack_folder: Path) -> Iterator[KafkaCluster]:
    cluster = KafkaCluster(f"bearer-{uuid.uuid4().hex[:6]}", stack_folder, extra=OAUTHBEARER)
    with started(cluster):
        yield cluster


@pytest.fixture
def connections(
    scene: Scenario, bearer_target: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> EnvironmentConnections:
    settings: dict[str, Any] = {
        "source": {"bootstrap.servers": scene.source.bootstrap},
        "target": {
            "bootstrap.servers": bearer_target.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": oauth.PATH,
        },
    }
    for name, extra in settings.items():
        monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps({"conn_type": "kafka", "extra": extra}))
    monkeypatch.setenv(ALLOWLIST_VARIABLE, oauth.PATH)
    return EnvironmentConnections()


class AsSpark(InProcess):
    """Each job crosses to another process as JSON."""

    def submit(self, job: Job, deliver: Deliver) -> JobEnd:
        return super().submit(JOB.validate_json(JOB.dump_json(job)), deliver)


def test_a_run_logs_in_with_the_tokens_of_the_named_function(
    scene: Scenario, connections: EnvironmentConnections
) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, [Rec(b"k%d" % n, b"v", (), 1_700_000_000_000) for n in range(20)])
    report = runner.run(scene.replication(), connections, scene.store, AsSpark, Request())
    assert report.outcome == "done", report.table()
    assert sum(each.copied for each in report.ranges) == 20


def test_a_function_that_nobody_allowed_is_never_called(
    scene: Scenario, connections: EnvironmentConnections, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(ALLOWLIST_VARIABLE)
    scene.source.create(scene.topic)
    with pytest.raises(BadInput, match="not an allowed callback"):
        runner.run(scene.replication(), connections, scene.store, no_launch, Request())
