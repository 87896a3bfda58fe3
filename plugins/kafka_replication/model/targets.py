"""The kinds of targets: where each is implemented. A file names one as ``target.type``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

KAFKA: Final = "kafka"
# By the word in a file: the class that is its `kafka_replication.targets.port.TargetKind`. A kind of somebody else's
# package is named as it stands here, ``package.module:Class``.
TARGETS: Final[Mapping[str, str]] = {KAFKA: "kafka_replication.kafka.target:KafkaTarget"}


def place_of(kind: str) -> tuple[str, str]:
    """The module and the name of the class of this kind."""
    module, _, name = TARGETS.get(kind, kind).partition(":")
    return module, name
