"""Reads the batches of one partition, as a ``read_committed`` consumer does.

Reads copied batches back, as brokers store them.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from confluent_kafka import KafkaError

from kafka_replication.kafka import clients
from kafka_replication.kafka.callbacks import Throttling
from kafka_replication.kafka.connect_diagnosis import translate
from kafka_replication.kafka.consumer_pool import Pace, paced
from kafka_replication.kafka.leaders import connect
from kafka_replication.model.errors import GapFound, Stalled
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.runtime.deadline import StallClock
from kafka_replication.verification.digests import BatchDigest
from kafka_replication.wire import fetching
from kafka_replication.wire.batch import TRANSACTIONAL, Batch, Malformed, batches
from kafka_replication.wire.connection import Connection
from kafka_replication.wire.contents import Contents

MOST = 4 << 20  # bytes of one answer; two may be in memory
WAIT = 0.1  # seconds


class BatchScan:
    """Reads one partition in the order of its offsets. One request is under way while the previous answer is processed.

    Raises Unreachable, Stalled, GapFound, Malformed, and what the broker's errors mean.
    """

    def __init__(
        self,
        config: clients.ClientConfig,
        at: TopicPartition,
        stall: float,
        throttling: Throttling,
        limit: int | None = None,
    ) -> None:
        """``stall`` is in seconds, ``limit`` in bytes a second; None is no limit."""
        self._config, self._at, self._stall, self._throttling = config, at, stall, throttling
        self._pace, self._most = Pace(limit), int(paced(config, limit).get("fetch.message.max.bytes", MOST))
        self._clock = StallClock(stall)
        self._pending = deque[tuple[Batch, bool]]()  # arrived, and whether a reader sees it
        self._next: int | None = None  # the offset that is fetched next
        self._connection: Connection | None = None
        self.position = 0  # the next offset; earlier batches were returned or are not visible
        # Of the offset before ``position``. Where that was compacted away it is the next batch's, as no earlier offset
        # has a later one. None if it is not known.
        self.leader_epoch: int | None = None
        self._limited, self._contents = limit is not None, Contents()
        # Is told the leader epoch of each batch that is passed, visible or not, and the offset behind it. May raise.
        self.passing: Callable[[int, int], None] = lambda epoch, until: None

    @property
    def connection(self) -> Connection:
        if self._connection is None:
            self._connection = connect(self._config, self._at, self._stall)
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def go_to(self, offset: int) -> None:
        """Move to the batch with this offset, or to the first one after it."""
        if self._next is None or not self.position <= offset <= self._next:
            if self._connection is not None and self._connection.open_requests:
                self.close()  # they are for other offsets
            self._pending.clear()
            self._next, self.leader_epoch = offset, None
        self.position = offset

    def peek(self, until: int) -> Batch | None:
        """The next visible batch that begins before ``until``; it may begin before the position. None if there is no
        such batch; the position is then at ``until``.
        """
        self._clock.moved()
        while self.position < until:
            while self._pending and self.position < until:
                batch, visible = self._pending[0]
                if batch.base_offset >= until:  # the batches before it are compacted away
                    self.position, self.leader_epoch = until, batch.leader_epoch
                    return None
                if visible and batch.until > self.position:
                    return batch
                self._pass(batch, until)
            if self.position < until:
                if self._fetch(until):
                    self._clock.moved()
                elif self._clock.is_over():
                    raise Stalled(
                        f"{self._at}: nothing arrived for {self._stall:.0f} s at offset {self.position} of {until}",
                        "check the brokers, and whether a transaction stays open there (last stable offset)",
                    )
        return None

    def take(self, until: int) -> None:
        """Move the position behind the batch that `peek` returned, but at most to ``until``."""
        self._pass(self._pending[0][0], until)

    def visible(self, wanted: OffsetRange) -> Iterator[Batch]:
        """The batches that have offsets in ``wanted``."""
        self.go_to(wanted.from_)
        while (batch := self.peek(wanted.until)) is not None:
            yield batch
            self.take(batch.until)

    def _pass(self, batch: Batch, until: int) -> None:
        if batch.until > self.position:
            behind = min(batch.until, until)
            self.passing(batch.leader_epoch, behind)
            self.position, self.leader_epoch = behind, batch.leader_epoch
        if batch.until <= until:
            self._pending.popleft()

    def _fetch(self, until: int) -> bool:
        """Add the batches of the next answer. Returns True if there are any."""
        assert self._next is not None
        self._pace.wait()
        if not self.connection.open_requests:
            self._ask()
        data, throttled = fetching.answer(self.connection)
        self._throttling.add(throttled, self.connection.address)
        if data is None:
            return False
        if data.error_code == KafkaError.OFFSET_OUT_OF_RANGE:
            raise GapFound(f"{self._at}: offset {self._next} can no longer be read", "plan again")
        if data.error_code:
            raise translate(KafkaError(int(data.error_code)), f"{self._at}: reading offset {self._next}")
        came = _readable(memoryview(data.records or b""))
        self._pace.spend(sum(map(self._contents.of, came)) if self._limited else 0)
        if data.records and not came:  # a broker sends at least one whole batch
            raise Malformed(f"there is no whole batch at offset {self._next}")
        if came:
            self._next = max(self._next, came[-1].until)
        if self._next < until:
            self._ask()
        aborted = [(int(one.first_offset), int(one.producer_id)) for one in data.aborted_transactions or ()]
        self._pending += with_visibility(came, aborted)
        return bool(came)

    def _ask(self) -> None:
        assert self._next is not None
        fetching.ask(self.connection, self._at.topic, self._at.partition, self._next, self._most, WAIT)


def _readable(data: memoryview) -> list[Batch]:
    """The batches before one that cannot be read, with which the next request begins. Raises Malformed if it comes
    first.
    """
    came = list[Batch]()
    try:
        for batch in batches(data):
            batch.check()
            came.append(batch)
    except Malformed:
        if not came:
            raise
    return came


def with_visibility(came: Iterable[Batch], aborted: Iterable[tuple[int, int]]) -> Iterator[tuple[Batch, bool]]:
    """Each batch, with True if a ``read_committed`` reader sees it. ``aborted`` has the first offset and the
    producer id of each aborted transaction that these batches may belong to, up to its marker.
    """
    left, open_ = deque(sorted(aborted)), set[int]()
    for batch in came:
        while left and left[0][0] < batch.until:
            open_.add(left.popleft()[1])
        if batch.is_control:
            open_.discard(batch.producer_id)
            yield batch, False
        else:
            yield batch, not (batch.attributes & TRANSACTIONAL and batch.producer_id in open_)


log = logging.getLogger(__name__)


class BatchCursor:
    """Reads one target partition from its first to its last wanted offset, with its own connection."""

    def __init__(self, config: clients.ClientConfig, at: TopicPartition, stall: float, limit: int | None) -> None:
        self._at = at
        self._open: Callable[[], BatchScan] = lambda: BatchScan(config, at, stall, Throttling(str(at), "target"), limit)
        self._scan = self._open()

    def read(self, wanted: Iterable[OffsetRange], digest: BatchDigest) -> int:
        """Add the committed batches at these ascending offsets to ``digest``, and return the number of their records. A
        batch that exists only in part is not added. Reading ends at a batch of another format.

        Raises GapFound, Stalled, Unreachable, BadInput.
        """
        before = digest.count
        try:
            for range_ in wanted:
                for batch in self._scan.visible(range_):
                    if range_.from_ <= batch.base_offset and batch.until <= range_.until:
                        digest.add_batch(batch)
        except Malformed as e:  # its records may still be equal; a client reports unreadable ones better
            log.warning("%s: %s", self._at, e)
            self._scan.close()
            self._scan = self._open()
        return digest.count - before

    def close(self) -> None:
        self._scan.close()
