"""Finds a kind of target by its name in the file."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from kafka_replication.model.errors import BadInput
from kafka_replication.model.targets import TARGETS, place_of
from kafka_replication.targets.port import TargetKind


def kind(name: str) -> TargetKind:
    """The kind of target of this name. Imports its module. Raises BadInput if it cannot be imported here."""
    module, class_ = place_of(name)
    try:
        return cast(TargetKind, getattr(import_module(module), class_))
    except (ImportError, AttributeError) as error:
        raise BadInput(
            f"target.type {name!r} cannot be imported: {error}",
            f"install the package of it where Airflow and Spark run, or use one of {', '.join(TARGETS)}",
        ) from error
