"""What a terminal needs so that the command line works on the stack."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

from stack.airflow_standalone import AirflowSettings, connections


def variables(settings: AirflowSettings) -> dict[str, str]:
    """The connections and the store of the stack's Airflow."""
    return {**connections(settings), "KAFKA_REPLICATION_STORE_URL": settings.store_url}


def exports(settings: AirflowSettings) -> Iterator[str]:
    """Lines of a shell: these variables, and the folder of kafka-replication."""
    for name, value in variables(settings).items():
        yield f"export {name}={shlex.quote(value)}"
    yield f'export PATH={shlex.quote(str(Path(sys.executable).parent))}:"$PATH"'
