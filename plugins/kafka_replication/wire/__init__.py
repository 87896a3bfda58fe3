"""Kafka's protocol beyond confluent-kafka: whole record batches, and the requests that carry them.

The package has connections, requests and answers of single brokers. `kafka_replication.kafka` chooses the broker, and
interprets the answer. Protocol: https://kafka.apache.org/protocol.html
"""

from __future__ import annotations

import sys
from contextlib import suppress


def _import_kio_without_hypothesis() -> None:
    """Import kio without hypothesis. If hypothesis is installed, kio gives it a strategy for each of its types when it
    is imported. That takes seconds, and leaves a folder ``.hypothesis`` in the working directory. Nothing here needs
    it.
    """
    is_hidden = "hypothesis" not in sys.modules
    if is_hidden:
        sys.modules["hypothesis"] = None  # type: ignore[assignment]  # importing it is an ImportError
    try:
        with suppress(ImportError):  # kio is only needed for whole batches
            from kio.static import _phantom

            _phantom.hypothesis = None
    finally:
        if is_hidden:
            del sys.modules["hypothesis"]


_import_kio_without_hypothesis()
