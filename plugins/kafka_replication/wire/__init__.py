"""Kafka's protocol beyond confluent-kafka: whole record batches, and the requests that carry them.

The package has connections, requests and answers of single brokers. `kafka_replication.kafka` chooses the broker, and
interprets the answer. Protocol: https://kafka.apache.org/protocol.html
"""

from __future__ import annotations

import sys
from contextlib import suppress

# Import kio without hypothesis. If that is installed, kio gives it a strategy for each of its types when it is
# imported, which takes seconds, and leaves a folder ``.hypothesis`` in the working directory. Nothing here needs it.
_is_hidden = "hypothesis" not in sys.modules
if _is_hidden:
    sys.modules["hypothesis"] = None  # type: ignore[assignment]  # importing it is an ImportError
try:
    with suppress(ImportError):  # kio is only needed for whole batches
        from kio.static import _phantom

        _phantom.hypothesis = None
finally:
    if _is_hidden:
        del sys.modules["hypothesis"]
