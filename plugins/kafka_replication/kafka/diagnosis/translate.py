"""Translates errors of Kafka's client into errors of this package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from confluent_kafka import KafkaError

from kafka_replication.kafka.diagnosis.connect_diagnosis import name_of, principal_of
from kafka_replication.kafka.diagnosis.error_table import row_of
from kafka_replication.model.errors import Fenced, NotAuthorized, ReplicationError
from kafka_replication.model.keys import replication_of
from kafka_replication.model.rights import Operation, Resource, Right
from kafka_replication.planning.checks.rights import on_transactions

_RESOURCES = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: Resource.TOPIC,
    KafkaError.GROUP_AUTHORIZATION_FAILED: Resource.GROUP,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Resource.TRANSACTIONAL_ID,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: Resource.CLUSTER,
}


@dataclass(frozen=True, slots=True)
class Asked:
    """The cluster of a request, and its target: the operation and the name on each kind of resource."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    needs: Mapping[Resource, tuple[Operation, str]] = field(default_factory=dict)

    @classmethod
    def of(cls, client: object, **needs: tuple[Operation, str]) -> Self:
        """The `Asked` of this client; ``needs`` by the names of `Resource`, in small letters."""
        reported = getattr(client, "reported", None)
        return cls(
            reported.settings if reported else {}, {Resource[name.upper()]: need for name, need in needs.items()}
        )

    def right(self, resource: Resource) -> Right | None:
        """The right that is needed on this kind of resource; None if it, or the side, is not known. For one
        transactional id it is the right on all ids of the replication, because the next one would be denied, too.
        """
        side = name_of(self.settings).side
        if resource not in self.needs or not side:
            return None
        operation, name = self.needs[resource]
        if resource is Resource.TRANSACTIONAL_ID:
            return on_transactions(replication_of(name))
        return Right(side=side, operation=operation, resource=resource, name=name)


NOTHING = Asked()


def translate(error: KafkaError, doing: str, asked: Asked = NOTHING) -> ReplicationError:
    """The error of this package for Kafka's ``error``, see `error_table`. It says how to grant a missing right."""
    row = row_of(error)
    if row.kind is Fenced:
        return Fenced(
            f"{doing}: fenced ({row.name}): a newer copier took over, or the transaction outlived its time-out",
            row.remedy,
        )
    if error.code() in _RESOURCES and (right := asked.right(_RESOURCES[error.code()])):
        is_one = right.resource is Resource.TRANSACTIONAL_ID  # perhaps a rule denies this one alone
        as_ = f" as {asked.needs[right.resource][1]}" if is_one else ""
        return NotAuthorized.of(right, name_of(asked.settings), principal_of(asked.settings), f"{doing}{as_}")
    cluster = name_of(asked.settings)
    where = f"{cluster}: " if cluster.side else ""
    return row.kind(f"{doing}: {where}{row.name}: {error.str()}", row.remedy)
