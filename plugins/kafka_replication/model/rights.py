"""The rights that a replication needs on its clusters, and the command that grants one."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

Side = Literal["source", "target"]


@dataclass(frozen=True, slots=True)
class ClusterName:
    """The name of one cluster of a replication in messages. Side and connection are empty if they are not known."""

    address: str
    side: Side | Literal[""] = ""
    connection: str = ""

    def __str__(self) -> str:
        """``target 127.0.0.1:9092 (connection 'kafka_target')``."""
        name = f"{self.side or 'Kafka at'} {self.address}"
        return f"{name} (connection {self.connection!r})" if self.connection else name


class Resource(StrEnum):
    """A kind of resource, in the spelling of kafka-acls.sh."""

    TOPIC = "topic"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactional-id"
    CLUSTER = "cluster"


class Operation(StrEnum):
    """The operation that a right allows, in the spelling of kafka-acls.sh."""

    READ = "Read"
    WRITE = "Write"
    CREATE = "Create"
    ALTER = "Alter"
    ALTER_CONFIGS = "AlterConfigs"
    DESCRIBE = "Describe"
    DESCRIBE_CONFIGS = "DescribeConfigs"
    IDEMPOTENT_WRITE = "IdempotentWrite"


# A client that may do any of these on a resource may describe it, too (Kafka, "Authorization and ACLs").
IMPLY_DESCRIBE = frozenset({Operation.READ, Operation.WRITE, Operation.ALTER})
UNKNOWN_PRINCIPAL = "User:<principal>"  # stands in a command if the login does not show the principal


@dataclass(frozen=True, slots=True)
class Login:
    """The principal of this client at one cluster of a replication."""

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
        return (
            f"{ACLS.format(bootstrap)} --add --allow-principal {shlex.quote(principal)} --operation {self.operation}"
            f" {_options(self.resource, self.name, prefixed=self.prefixed)}"
        )


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class DenyRule:
    """A rule of an access control list that denies. It counts more than every rule that allows."""

    side: Side
    principal: str  # User:* is everybody
    host: str  # * is every host
    operation: str  # as `Operation`; All is every one
    resource: Resource
    name: str  # * is every name
    prefixed: bool = False

    def forbids(self, right: Right, principal: str) -> bool:
        """True if this rule may deny ``right`` to ``principal``. Hosts are not compared."""
        return (
            (self.side, self.resource) == (right.side, right.resource)
            and self.principal in (principal, "User:*")
            and self.operation in (right.operation, Operation.DESCRIBE, "All")
            and (
                right.resource is Resource.CLUSTER
                or (right.name.startswith(self.name) if self.prefixed else self.name in (right.name, "*"))
            )
        )

    def __str__(self) -> str:
        beginning = "whose name begins with " if self.prefixed else ""
        name = "" if self.resource is Resource.CLUSTER else f" {beginning}{self.name}"
        return f"{self.operation} on {self.resource.replace('-', ' ')}{name} for {self.principal} from host {self.host}"

    def command(self, bootstrap: str) -> str:
        """The command that removes exactly this rule."""
        return (
            f"{ACLS.format(bootstrap)} --remove --deny-principal {shlex.quote(self.principal)}"
            f" --deny-host {shlex.quote(self.host)} --operation {self.operation}"
            f" {_options(self.resource, self.name, prefixed=self.prefixed)}"
        )


ACLS = "kafka-acls.sh --bootstrap-server {} --command-config admin.properties"


def _options(resource: Resource, name: str, *, prefixed: bool) -> str:
    kind = "--cluster" if resource is Resource.CLUSTER else f"--{resource} {shlex.quote(name)}"
    return kind + (" --resource-pattern-type prefixed" if prefixed else "")
