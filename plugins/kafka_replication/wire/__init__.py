"""Kafka's protocol where confluent-kafka does not reach: whole record batches, and the requests that carry them.

Connections, requests and answers of single brokers. Which broker to ask, and what an answer means, is decided by
`kafka_replication.kafka`. Protocol: https://kafka.apache.org/protocol.html
"""

from __future__ import annotations

import sys
from contextlib import suppress


def _import_kio_alone() -> None:
    """Where hypothesis is installed, kio gives it a strategy for each of its types as they are defined. That takes
    seconds, and leaves a folder ``.hypothesis`` where the process was started. Nothing here needs it.
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


_import_kio_alone()
