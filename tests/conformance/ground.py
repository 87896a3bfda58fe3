"""The ground that a suite works on: a target under test, and what somebody else can do to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from kafka_replication.config import Copy, Replication
from kafka_replication.copying.sink import Record
from kafka_replication.model.choices import EXACTLY_ONCE, Delivery
from kafka_replication.model.errors import ReplicationError
from kafka_replication.runtime.deadline import NEVER, Deadline
from kafka_replication.targets.port import Target, TargetKind, TargetSettings

E = TypeVar("E", bound=ReplicationError)
SETTINGS = Copy(transaction_timeout=20, stall_timeout=20)


class Ground(Protocol):
    """A target that is empty, or shared with other cases: each has topics of its own."""

    @property
    def kind(self) -> TargetKind: ...

    @property
    def connection(self) -> Mapping[str, Any]:
        """The settings of its connection."""

    def create(self, topic: str, partitions: int = 1) -> None: ...

    def delete(self, topic: str) -> None: ...

    def limit(self, topic: str, size: int) -> None:
        """From now on the topic takes no record of more bytes."""

    def id_of(self, topic: str) -> str:
        """The id of the topic, which another one of the same name does not have."""

    def write(self, topic: str, record: Record) -> None:
        """Write a record to partition 0 behind all others, as a stranger would."""

    def visible(self, topic: str, partition: int = 0) -> list[tuple[int, Record]]:
        """The places, in order, and the records that a reader finds, without the code under test."""

    def entries(self, topic: str, partition: int = 0) -> list[bytes | None]:
        """The values of the entries that a writer of the ledger sent to this topic, as readers see them. Fails if one
        may be hidden.
        """

    def peek(self, topic: str) -> list[bytes | None]:
        """The same of partition 0 now, whatever is hidden."""

    def put(self, topic: str, partition: int, key: bytes, value: bytes) -> None:
        """Write an entry to a topic of the ledger, as a stranger would."""


def opened(
    ground: Ground,
    replication: str,
    delivery: Delivery = EXACTLY_ONCE,
    deadline: Deadline = NEVER,
    settings: Copy = SETTINGS,
) -> Target:
    """A new object of the target, for this replication."""
    return ground.kind(settings_of(ground, replication, delivery, settings), deadline)


def settings_of(
    ground: Ground, replication: str, delivery: Delivery = EXACTLY_ONCE, settings: Copy = SETTINGS
) -> TargetSettings:
    """The settings of a target of this kind, with a file that has nothing else."""
    file = Replication.model_validate(
        {
            "name": replication,
            "source": {"connection": "source"},
            "target": {"connection": "target"},
            "topics": {"include": ["orders"]},
            "copy": settings,
            "delivery": delivery,
        }
    )
    return TargetSettings(replication=file, connection=ground.connection, shared=True)


def raised(kind: type[E], call: Callable[[], object]) -> E:
    """The error of this kind that ``call`` raises."""
    try:
        call()
    except kind as e:
        return e
    raise AssertionError(f"{kind.__name__} was not raised")
