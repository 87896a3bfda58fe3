"""What a missing right is called, and the command that grants it."""

from __future__ import annotations

import shlex

import pytest

from kafka_replication.model.errors import BadInput, NotAuthorized
from kafka_replication.model.rights import ClusterName, Operation, Resource, Right


def right(operation: Operation, resource: Resource, name: str = "", *, prefixed: bool = False) -> Right:
    return Right(side="target", operation=operation, resource=resource, name=name, prefixed=prefixed)


@pytest.mark.parametrize(
    ("right", "said", "options"),
    [
        (right(Operation.WRITE, Resource.TOPIC, "orders"), "Write on topic orders", "--operation Write --topic orders"),
        (
            right(Operation.WRITE, Resource.TRANSACTIONAL_ID, "kafka-replication/dr/", prefixed=True),
            "Write on transactional id whose name begins with kafka-replication/dr/",
            "--operation Write --transactional-id kafka-replication/dr/ --resource-pattern-type prefixed",
        ),
        (right(Operation.DESCRIBE, Resource.GROUP, "g"), "Describe on group g", "--operation Describe --group g"),
        (right(Operation.ALTER, Resource.CLUSTER), "Alter on cluster", "--operation Alter --cluster"),
    ],
)
def test_a_right_says_what_it_is_and_how_it_is_granted(right: Right, said: str, options: str) -> None:
    assert str(right) == said
    assert right.command("kafka:9092", "User:replicator") == (
        "kafka-acls.sh --bootstrap-server kafka:9092 --command-config admin.properties --add"
        f" --allow-principal User:replicator {options}"
    )


def test_a_shell_reads_the_principal_as_one_word() -> None:
    said = right(Operation.READ, Resource.TOPIC, "orders").command("kafka:9092", "User:CN=a b,O=c")
    assert "User:CN=a b,O=c" in shlex.split(said)


def test_the_error_names_the_cluster_the_right_and_the_command() -> None:
    missing = right(Operation.WRITE, Resource.TOPIC, "orders")
    error = NotAuthorized.of(missing, ClusterName("kafka:9092", "target", "kafka_target"), "User:replicator", "sending")
    assert error.what == "sending: target kafka:9092 (connection 'kafka_target'): Write on topic orders is missing"
    assert error.remedy.startswith(missing.command("kafka:9092", "User:replicator") + "; if it is granted already")
    assert (error.id, error.exit_code, error.retriable) == ("not-authorized", 1, False)
    assert not isinstance(error, BadInput), "the file and the arguments are right"
