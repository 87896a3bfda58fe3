"""Selects the replication files that become DAGs, and raises one import error that names every broken file.

A DAG file that defines no DAG raises the error. In the factory's DAG file it would make every good DAG stale.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from kafka_replication.config import Replication
from kafka_replication.config.reading.file import load_all
from kafka_replication.model.errors import ConfigError
from kafka_replication.orchestration.alerting import alerts


def good_replications(folder: Path) -> list[Replication]:
    """The replications of all files without a mistake."""
    replications, _ = load_all(folder)
    return [replication for replication in replications.values() if not alerts.problems([replication])]


def broken_replications(folder: Path) -> Iterator[tuple[Replication, ConfigError]]:
    """The readable part of each file with mistakes, and the mistakes."""
    replications, broken = load_all(folder)
    for each in broken:
        if each.rest is not None:
            yield _tellable(each.rest), each.error
    for replication in replications.values():
        if errors := alerts.problems([replication]):
            yield _tellable(replication), _together(errors)


def raise_import_errors(folder: Path) -> None:
    """Does nothing if all files are good. Raises ConfigError with ``FILE:LINE: key ...`` for each mistake."""
    replications, broken = load_all(folder)
    errors = [*(each.error for each in broken), *alerts.problems(replications.values())]
    if errors:
        raise _together(errors, "broken replication files:")


def _together(errors: Iterable[ConfigError], *heading: str) -> ConfigError:
    mistakes = list(errors)
    remedies = dict.fromkeys(error.remedy for error in mistakes)
    return ConfigError("\n".join([*heading, *(error.what for error in mistakes)]), "; ".join(remedies))


def _tellable(replication: Replication) -> Replication:
    """The replication without its notifiers, if one of them does not exist."""
    if not alerts.problems([replication]):
        return replication
    return replication.model_copy(update={"alerts": replication.alerts.model_copy(update={"notifiers": ()})})
