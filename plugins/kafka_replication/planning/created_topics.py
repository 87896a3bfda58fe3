"""How a missing target topic is created: it takes what the source takes, and keeps it as long as the source may.

Kafka deletes and compacts by segments, and judges a segment by its largest timestamp. On the source, old records may
share a segment with young ones and stay; on the target, a transaction's marker, stamped with the present, begins a new
segment as soon as the first record is older than `segment.ms`, and leaves the old ones alone in a segment that may go
at once, before it is read back, or after.

A limit in bytes is not taken over: the same records may need more bytes on the target, which would delete some of them,
even before they are read back. The limit in time is.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafka_replication.config.model import DAY, MIN_COMPACTION_LAG, TargetTopics

_SAME_AS_SOURCE = ("max.message.bytes", "cleanup.policy")
# The target compresses anew, with lz4 unless the connection says otherwise: up to about twice what zstd needs.
ROOM = 2
_DAY = DAY * 1000
_FOREVER = 36_500 * _DAY
_MOST = 2**63 - 1


def created_config(source: Mapping[str, str], settings: TargetTopics) -> dict[str, str]:
    """The configuration of the target topic for a source topic that has ``source``; `target_topics.config` has the last
    word.
    """
    config = {MIN_COMPACTION_LAG: str(settings.min_compaction_lag * 1000)}
    config |= {name: source[name] for name in _SAME_AS_SOURCE if name in source}
    if "retention.bytes" in source:  # said, or the brokers' own limit might be one
        config["retention.bytes"] = "-1"
    if "retention.ms" in source:
        config["retention.ms"] = str(_kept(source))
    if "compact" in source.get("cleanup.policy", ""):
        # Old records and the present's markers then share a segment, which min.compaction.lag.ms keeps until it is full
        # and old.
        config["segment.ms"] = str(_FOREVER)
    return {**config, **settings.config}


def _kept(source: Mapping[str, str]) -> int:
    """Milliseconds, -1 for ever: a segment's oldest record is older than its youngest by up to `segment.ms`; a day is
    for reading back.
    """
    retention, segment = int(source["retention.ms"]), int(source.get("segment.ms", 0))
    kept = retention + segment + _DAY
    return kept if retention >= 0 and kept <= _MOST else -1
