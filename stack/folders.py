"""Where the stack keeps things. Every file it writes lies below one of these folders."""

from __future__ import annotations

import os
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent


def state_folder() -> Path:
    """Clusters, Airflow's home and the watermark store: ``KAFKA_REPLICATION_STATE``, or ``.state`` in the
    repository.
    """
    return Path(os.environ.get("KAFKA_REPLICATION_STATE") or REPOSITORY / ".state").resolve()


def cache_folder() -> Path:
    """Downloads, shared by all state folders: ``KAFKA_REPLICATION_CACHE``, or ``.state/cache`` in the repository."""
    return Path(os.environ.get("KAFKA_REPLICATION_CACHE") or REPOSITORY / ".state" / "cache").resolve()
