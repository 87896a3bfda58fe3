"""Finds out, on the first chunks of a range, which of two engines carries it faster."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from dataclasses import dataclass, field

from kafka_replication.copying.engine import Chunk

log = logging.getLogger(__name__)

# Batches of this size or above are faster as they are stored, on every link and with every number of replicas: the
# rival would put no more of their records into one request. Bytes, as they are stored.
LARGE = 128 << 10
SHORTEST = 20_000  # offsets; in a shorter range a comparison costs more than the slower engine does
PART = 20  # each chunk that is measured has this part of the range, within these bounds
LEAST, MOST = 1_000, 20_000  # records
Winners = MutableMapping[str, bool]  # by topic, True if the rival was faster


@dataclass(slots=True, kw_only=True)
class Trial:
    """Compares an engine that copies whole batches with its ``rival``, which decodes their records.

    Each small batch costs a request. Where requests are answered soon, the first engine is faster nevertheless. Where
    replicas or a distant target let them wait, the rival is, as it packs the same records into fewer batches. So both
    copy two chunks of the range, of which the second one is measured: the first one is slower, as connections are made.
    The faster engine copies the rest. ``winners`` has the outcomes of other partitions, and gets this one.
    """

    topic: str
    partition: int
    span: int  # of the range, in offsets
    winners: Winners = field(default_factory=dict)
    _chunks: int = field(init=False, default=0)  # that were committed in the trial
    _speed: float = field(init=False, default=0.0)  # of the first engine, in bytes of records a second
    _early: bool = field(init=False, default=False)  # one chunk was not counted
    _rival: bool | None = field(init=False, default=None)  # True if it copies the rest; None: not decided

    def __post_init__(self) -> None:
        self._rival = self.winners.get(self.topic)

    @property
    def is_for_rival(self) -> bool:
        """True if the rival copies the next chunk."""
        return self._chunks >= 2 if self._rival is None else self._rival

    @property
    def sample(self) -> int | None:
        """The most records of the next chunk; None if the trial is over."""
        return None if self._rival is not None else max(LEAST, min(MOST, self.span // PART))

    def measured(self, chunk: Chunk, seconds: float) -> None:
        """Note a chunk that was written in so many seconds, without its commit."""
        if self._rival is not None or not chunk.count or self._is_cut_short(chunk):
            return
        self._chunks += 1
        speed = chunk.bytes / max(seconds, 1e-6)
        match self._chunks:
            case 1 if chunk.batch_bytes >= LARGE:
                self._decide(f"its batches have {chunk.batch_bytes:,} bytes", rival=False)
            case 1 if self.span < SHORTEST:
                self._decide(f"its batches have {chunk.batch_bytes:,} bytes, and it is short", rival=True)
            case 2:
                self._speed = speed
            case 4:
                measured = f"{self._speed / 1e6:.1f} MB/s as stored, {speed / 1e6:.1f} MB/s decoded"
                self._decide(measured, rival=speed > self._speed)
                self.winners[self.topic] = speed > self._speed

    def give_up(self) -> None:
        """The rival got no further: the first engine, which did, copies the rest."""
        self._decide("the record engine got no further", rival=False)

    def _is_cut_short(self, chunk: Chunk) -> bool:
        """True for one first chunk that ended early, as before a batch that was too large for it: it tells little."""
        if self._chunks or self._early or not self.sample or chunk.count * 2 >= self.sample:
            return False
        self._early = True
        return True

    def _decide(self, why: str, *, rival: bool) -> None:
        self._rival = rival
        how = "decoded" if rival else "in whole batches"
        log.info("%s-%d: the range is copied %s: %s", self.topic, self.partition, how, why)
