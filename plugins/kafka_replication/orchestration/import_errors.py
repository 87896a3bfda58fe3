"""Which replication files become DAGs, and one error that names every broken replication file, for Airflow's page to
show.

The error is raised from a DAG file that defines no DAG: raised from the factory's, it would make every good DAG stale.
"""

from __future__ import annotations

from pathlib import Path

from kafka_replication.config import Replication
from kafka_replication.config.file import load_all
from kafka_replication.model.errors import ConfigError
from kafka_replication.orchestration import alerts


def good_replications(folder: Path) -> list[Replication]:
    """Those of all files without a mistake."""
    replications, _ = load_all(folder)
    return [each for each in replications.values() if not alerts.problems([each])]


def raise_import_errors(folder: Path) -> None:
    """Does nothing if all files are good. Raises ConfigError with ``FILE:LINE: key ...`` for each mistake."""
    replications, errors = load_all(folder)
    errors += alerts.problems(replications.values())
    if errors:
        remedies = dict.fromkeys(each.remedy for each in errors)
        raise ConfigError(
            "\n".join(["broken replication files:", *(each.what for each in errors)]), "; ".join(remedies)
        )
