"""Finds a kind of target by its name in the file."""

from __future__ import annotations

from typing import cast

from kafka_replication.copying.functions import named
from kafka_replication.model.targets import implementation
from kafka_replication.targets.port import TargetKind


def kind(name: str) -> TargetKind:
    """The kind of target of this name. Imports its module. Raises BadInput if it cannot be imported here."""
    return cast(TargetKind, named(implementation(name), "kind of target"))
