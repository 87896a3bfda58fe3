"""Reads the batches of one partition, as a ``read_committed`` consumer does, over a connection to its leader.

Reads copied batches back, as brokers store them.

Tells which header names the client has cut: librdkafka's ends a name at its first NUL, and nothing shows that. So the
batches that have headers are read a second time, as they are stored.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain

from confluent_kafka import KafkaError

from kafka_replication.kafka import clients, topics
from kafka_replication.kafka.brokers import security_of
from kafka_replication.kafka.callbacks import Throttling
from kafka_replication.kafka.connect_diagnosis import translate
from kafka_replication.kafka.consumer_pool import Pace, paced
from kafka_replication.model.errors import BadInput, GapFound, NotReady, SessionEnded, Stalled
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.runtime.deadline import StallClock
from kafka_replication.verification.digests import BatchDigest, Headers
from kafka_replication.wire import fetching
from kafka_replication.wire.batch import (
    AS_SENT,
    CODEC,
    CONTROL,
    FRAME,
    LAST_CODEC,
    TRANSACTIONAL,
    Batch,
    Malformed,
    batches,
    end_of_whole,
    unpacked,
)
from kafka_replication.wire.connection import Connection
from kafka_replication.wire.contents import NUL, Contents, nul_in_names
from kafka_replication.wire.tls import Unsupported

log = logging.getLogger(__name__)
MOST = 4 << 20  # bytes of one answer; two may be in memory
WAIT = 0.1  # seconds


def connect(config: clients.ClientConfig, at: TopicPartition, timeout: float) -> Connection:
    """To the leader of the partition. Raises NotReady without one, BadInput for unsupported settings, and the errors of
    `Connection`.
    """
    (topic,) = topics.descriptions(clients.shared_admin(config), [at.topic]).values()
    leader = next((partition.leader for partition in topic.partitions if partition.id == at.partition), None)
    if leader is None or not leader.host:
        raise NotReady(f"{at} has no leader", "check the brokers that have its replicas, then run again")
    try:
        security = security_of(config)
    except Unsupported as e:
        raise BadInput(
            f"{at} cannot be read in whole batches: {e.what}",
            f"{e.remedy}; what copy.engine batch has copied is read back in whole batches",
        ) from e
    return Connection(leader.host, leader.port, security, timeout)


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
        # What is left of the last answer: batches, parsed as they are taken. No reader sees those of control.
        self._arrived: Iterator[Batch] = iter(())
        self._first: Batch | None = None  # of those that are left, if it was looked at
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
            self._arrived, self._first = iter(()), None
            self._next, self.leader_epoch = offset, None
        self.position = offset

    def peek(self, until: int) -> Batch | None:
        """The next visible batch that begins before ``until``; it may begin before the position. None if there is no
        such batch; the position is then at ``until``.
        """
        self._clock.moved()
        while self.position < until:
            while self.position < until and (batch := self._look()):
                if batch.base_offset >= until:  # the batches before it are compacted away
                    self.position, self.leader_epoch = until, batch.leader_epoch
                    return None
                if batch.until > self.position and not batch.is_control:
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
        if (first := self._look()) is not None:
            self._pass(first, until)

    def take_whole(self, until: int, most_records: int, largest: int) -> Iterator[Batch]:
        """The next batches that have arrived, as long as they are visible, as a producer sent them, of one leader
        epoch, and not larger than ``largest`` bytes: those before ``until``, at most so many records. The position is
        behind each that is given. Copies of small batches spend most of their time between here and the target, so
        little is called for each.
        """
        if (first := self._look()) is None:
            return
        its_epoch, before = first.leader_epoch, self.position
        usual, position, largest = None, before, largest - FRAME
        self._first = None
        for batch in chain((first,), self._arrived):
            offset, epoch, attributes, delta, _, _, _, _, count, payload = batch
            if attributes != usual:
                usual = attributes if not attributes & ~AS_SENT and attributes & CODEC <= LAST_CODEC else None
            if (
                usual is None
                or offset < position
                or offset + delta >= until
                or not count == delta + 1 > 0
                or epoch != its_epoch
                or (most_records := most_records - count) < 0
                or len(payload) > largest
            ):
                self._first = batch
                break
            self.position = position = offset + count
            self.leader_epoch = epoch
            yield batch
        if position > before:
            self.passing(its_epoch, position)

    def _look(self) -> Batch | None:
        """The first of the batches that are left. Raises Malformed."""
        if self._first is None:
            self._first = next(self._arrived, None)
        return self._first

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
            self._first = None

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
        came = memoryview(data.records or b"")
        self._pace.spend(self._size(came) if self._limited else 0)
        if (end := end_of_whole(came)) is not None:
            self._next = max(self._next, end)
        elif came:  # a broker sends at least one whole batch
            raise Malformed(f"there is no whole batch at offset {self._next}")
        if self._next < until:
            self._ask()
        aborted = [
            (int(transaction.first_offset), int(transaction.producer_id))
            for transaction in data.aborted_transactions or ()
        ]
        self._arrived = self._read(came, aborted)
        return end is not None

    def _size(self, came: memoryview) -> int:
        """The bytes of all records of an answer, up to a batch that cannot be read."""
        size = 0
        with suppress(Malformed):  # raised when it is read
            for batch in batches(came, checked=True):
                size += self._contents.of(batch)
        return size

    def _read(self, came: memoryview, aborted: Iterable[tuple[int, int]]) -> Iterator[Batch]:
        """The batches of an answer before one that cannot be read, with which the next answer begins. Raises Malformed
        if that comes first.
        """
        some = False
        try:
            for batch in without_aborted(batches(came, checked=True), aborted):
                some = True
                yield batch
        except Malformed:
            self.close()
            self._next = self.position
            if not some:
                raise

    def _ask(self) -> None:
        assert self._next is not None
        fetching.ask(self.connection, self._at.topic, self._at.partition, self._next, self._most, WAIT)


def without_aborted(came: Iterable[Batch], aborted: Iterable[tuple[int, int]]) -> Iterator[Batch]:
    """The same batches. Those of aborted transactions become control batches, which a ``read_committed`` reader does
    not see either. ``aborted`` has the first offset and the producer id of each such transaction that these batches may
    belong to, up to its marker.
    """
    left, open_ = deque(sorted(aborted)), set[int]()
    if not left:  # as of most producers
        yield from came
        return
    for batch in came:
        while left and left[0][0] < batch.until:
            open_.add(left.popleft()[1])
        if batch.is_control:
            open_.discard(batch.producer_id)
        elif batch.attributes & TRANSACTIONAL and batch.producer_id in open_:
            batch = batch._replace(attributes=batch.attributes | CONTROL)
        yield batch


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


CUT = "it has a header whose name has a NUL, where the client would cut it"


class HeaderNames:
    """Compares with the stored batch. A name that the client has cut stands in the batch with a NUL behind it. So if no
    name of a record stands in its batch like that, none was cut; otherwise every record of the batch is looked at, and
    so it is where compaction may have removed the record after the client read it.
    """

    def __init__(self, at: TopicPartition, scan: BatchScan) -> None:
        self._at, self._scan = at, scan
        self._first = self._until = 0  # the source offsets of the batch
        self._data, self._count = b"", 0  # its records
        self._whole = set[str]()  # names that the client has cut nowhere in the batch
        self._cut: dict[int, bool] | None = None  # by offset in the batch, if each record was looked at
        self._why = CUT

    def close(self) -> None:
        self._scan.close()

    def wrong(self, offset: int, headers: Headers) -> str | None:
        """The reason why these header names, as the client gives them, are not those of the record at this offset of
        the source, or may not be; None if they are. Ask for records with headers, in the order of their offsets.
        Raises Unreachable, Stalled, GapFound, and SessionEnded if the source no longer has the record.
        """
        if not self._first <= offset < self._until:
            self._go_to(offset)
        if self._cut is None:
            new = {name for name, _ in headers if name not in self._whole}
            if not any(name.encode() + NUL in self._data for name in new):
                self._whole |= new
                return None
            self._look_at_each()
        assert self._cut is not None
        if (cut := self._cut.get(offset - self._first)) is None:
            raise self._gone(offset)
        return self._why if cut else None

    def _go_to(self, offset: int) -> None:
        self._scan.go_to(offset)
        try:
            batch = self._scan.peek(offset + 1)
            if batch is None or batch.base_offset > offset:
                raise self._gone(offset)
            data = unpacked(batch.attributes & CODEC, batch.payload)
            self._first, self._until, self._data, self._count = batch.base_offset, batch.until, data, batch.count
            self._whole, self._cut, self._why = set(), None, CUT
            if batch.count != batch.last_offset_delta + 1:
                self._look_at_each()
        except (Malformed, ValueError) as e:
            self._doubt(offset, offset + 1, e)

    def _gone(self, offset: int) -> SessionEnded:
        return SessionEnded(
            f"{self._at}: the record at offset {offset} was read, but its leader does not have it any more",
            "a new session reads on",
        )

    def _look_at_each(self) -> None:
        try:
            self._cut = nul_in_names(self._data, self._count)
        except (ValueError, IndexError) as e:
            self._doubt(self._first, self._until, e)

    def _doubt(self, first: int, until: int, error: Exception) -> None:
        """Say of all these offsets that their names cannot be seen: nothing is copied on a guess."""
        self._first, self._until, self._cut = first, until, dict.fromkeys(range(until - first), True)
        self._why = f"the names of its headers cannot be compared with the stored ones ({error})"
