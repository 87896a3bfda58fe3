"""The size of a producer's batches: as large as the target topic allows where the way to the target is long.

An idempotent producer of librdkafka 2.16 has one batch of a partition under way at a time, whatever
``max.in.flight.requests.per.connection`` says (its pull request 4989; measured by ``python -m benchmarks.long_links``).
So a partition carries one batch in a round trip: with 1 MiB and 200 ms, 5 MB/s.
"""

from __future__ import annotations

import os
import time

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from kafka_replication.kafka.client import clients
from kafka_replication.ledger.entries import POSITIONS

LEAST, MOST = 1 << 20, 16 << 20
BYTES_PER_SECOND = 64e6  # that a partition should be able to carry
FRAMING = 1024
_round_trips: dict[tuple[int, str], float] = {}


def batch_size(target: clients.ClientConfig, limit: int) -> int:
    """The ``batch.size`` for a topic that takes batches of at most ``limit`` bytes.

    A batch above this limit is refused as a whole, even if its records fit; the client counts its bytes before
    it compresses them.
    """
    most = max(FRAMING, limit - FRAMING)
    if "batch.size" in target:
        return min(most, int(target["batch.size"]))
    return min(most, for_round_trip(round_trip(target)) if most > LEAST else LEAST)


def for_round_trip(seconds: float) -> int:
    """So many bytes that one batch in each round trip is fast enough."""
    return int(min(MOST, max(LEAST, seconds * BYTES_PER_SECOND)))


def round_trip(config: clients.ClientConfig) -> float:
    """Seconds to a broker and back, measured once in a process; 0 if none answers. Raises Unreachable."""
    name = os.getpid(), str(config["bootstrap.servers"])
    if name not in _round_trips:
        admin = clients.shared_admin(config)
        try:
            _round_trips[name] = min(_ask(admin) for _ in range(3))  # the first may have to connect
        except KafkaException:  # what is asked next reports it
            return 0.0
    return _round_trips[name]


def _ask(admin: AdminClient) -> float:
    started = time.monotonic()
    admin.list_topics(POSITIONS, timeout=10)
    return time.monotonic() - started
