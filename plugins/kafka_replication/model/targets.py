"""The kinds of targets: where each is implemented. A file names one as ``target.type``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

KAFKA: Final = "kafka"
# By the word in a file: the class that is its `kafka_replication.targets.port.TargetKind`. A kind of somebody else's
# package is named as it stands here, ``package.module:Class``.
TARGETS: Final[Mapping[str, str]] = {KAFKA: "kafka_replication.kafka.target:KafkaTarget"}


def module_of(kind: str) -> str:
    """The module that has the class of this kind."""
    return TARGETS.get(kind, kind).partition(":")[0]
