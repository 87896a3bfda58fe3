"""Selects the replication files that become DAGs, and raises one import error that names every broken file.

A DAG file that defines no DAG raises the error. In the factory's DAG file it would make every good DAG stale.
"""

from __future__ import annotations

from pathlib import Path

from kafka_replication.config import Replication
from kafka_replication.config.file import load_all
from kafka_replication.model.errors import ConfigError
from kafka_replication.orchestration import alerts


def good_replications(folder: Path) -> list[Replication]:
    """The replications of all files without a mistake."""
    replications, _ = load_all(folder)
    return [replication for replication in replications.values() if not alerts.problems([replication])]


def raise_import_errors(folder: Path) -> None:
    """Does nothing if all files are good. Raises ConfigError with ``FILE:LINE: key ...`` for each mistake."""
    replications, errors = load_all(folder)
    errors += alerts.problems(replications.values())
    if errors:
        remedies = dict.fromkeys(error.remedy for error in errors)
        raise ConfigError(
            "\n".join(["broken replication files:", *(error.what for error in errors)]), "; ".join(remedies)
        )
