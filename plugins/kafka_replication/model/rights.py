"""The rights that a replication needs on its clusters, and the command that grants one."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

Side = Literal["source", "target"]


@dataclass(frozen=True, slots=True)
class ClusterName:
    """What a message calls one cluster of a replication. The side and the connection may be unknown, then empty."""

    address: str
    side: Side | Literal[""] = ""
    connection: str = ""

    def __str__(self) -> str:
        """``target 127.0.0.1:9092 (connection 'kafka_target')``."""
        name = f"{self.side or 'Kafka at'} {self.address}"
        return f"{name} (connection {self.connection!r})" if self.connection else name


class Resource(StrEnum):
    """A kind of resource, as the option of kafka-acls.sh calls it."""

    TOPIC = "topic"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactional-id"
    CLUSTER = "cluster"


class Operation(StrEnum):
    """What a right allows, as kafka-acls.sh calls it."""

    READ = "Read"
    WRITE = "Write"
    CREATE = "Create"
    ALTER = "Alter"
    DESCRIBE = "Describe"
    DESCRIBE_CONFIGS = "DescribeConfigs"
    IDEMPOTENT_WRITE = "IdempotentWrite"


# A client that may do any of these on a resource may describe it, too (Kafka, "Authorization and ACLs").
IMPLY_DESCRIBE = frozenset({Operation.READ, Operation.WRITE, Operation.ALTER})
UNKNOWN_PRINCIPAL = "User:<principal>"  # what stands in a command if the login does not tell who this client is


@dataclass(frozen=True, slots=True)
class Login:
    """Who is logged in at which cluster of a replication."""

    cluster: ClusterName
    principal: str = UNKNOWN_PRINCIPAL


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Right:
    """One operation on one resource of one side, which an access control list allows."""

    side: Side
    operation: Operation
    resource: Resource
    name: str = ""  # of the resource; empty for the cluster
    prefixed: bool = False  # ``name`` is the beginning of the names

    def __str__(self) -> str:
        """``Write on topic kafka-replication.positions``."""
        kind = self.resource.value.replace("-", " ")
        beginning = "whose name begins with " if self.prefixed else ""
        return f"{self.operation.value} on {kind}" + (f" {beginning}{self.name}" if self.name else "")

    def command(self, bootstrap: str, principal: str = UNKNOWN_PRINCIPAL) -> str:
        """The command that grants exactly this right to ``principal``, such as ``User:replicator``."""
        resource = "--cluster" if self.resource is Resource.CLUSTER else f"--{self.resource} {shlex.quote(self.name)}"
        pattern = " --resource-pattern-type prefixed" if self.prefixed else ""
        return (
            f"kafka-acls.sh --bootstrap-server {bootstrap} --command-config admin.properties --add"
            f" --allow-principal {shlex.quote(principal)} --operation {self.operation} {resource}{pattern}"
        )
