"""One partition's session in a profile without transactions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial

from kafka_replication.config import Copy
from kafka_replication.kafka.client import clients
from kafka_replication.kafka.metadata import offsets
from kafka_replication.kafka.write.chunk_writer import ChunkWriter
from kafka_replication.kafka.write.plain_producer import AcknowledgedProducer
from kafka_replication.kafka.write.plain_writer import AcknowledgedWriter, Area
from kafka_replication.kafka.write.quarantine_writer import AsideWriter
from kafka_replication.kafka.write.send_window import SendWindow
from kafka_replication.kafka.write.session import PartitionSession
from kafka_replication.kafka.write.transactions import TransactionalProducer
from kafka_replication.ledger.entries import Gap, Position, Receipt
from kafka_replication.ledger.port import Ledger
from kafka_replication.model.delivery import EXACTLY_ONCE, LOSSY, Delivery
from kafka_replication.model.errors import Fenced
from kafka_replication.model.keys import PartitionKey
from kafka_replication.runtime.deadline import Deadline


class AcknowledgedSession(PartitionSession):
    """Sends records with the acknowledgement of its profile. Then it writes the receipt, and then the position.

    Ledger entries are always acknowledged by all replicas in sync. A crash leaves records, and perhaps a receipt, that
    the position does not cover: the next session sends them again. No broker fences a session. Before each commit it
    looks whether the position is still the one that it knows. A copier that sleeps just after that, and wakes up when
    another one has moved on, sets the position back: to a true position, from where records are doubled and none is
    lost.
    """

    def __init__(
        self,
        key: PartitionKey,
        target: clients.ClientConfig,
        settings: Copy,
        deadline: Deadline,
        ledger: Ledger | None = None,
        *,
        delivery: Delivery,
    ) -> None:
        super().__init__(key, target, settings, deadline, ledger)
        self.delivery = delivery
        what = str(key.source)
        entries = AcknowledgedProducer("at_least_once", what, target, settings, deadline)
        self._records = entries
        if delivery in LOSSY:
            self._records = AcknowledgedProducer(delivery, what, target, settings, deadline)
        self.transaction, self.sender = entries, self._records
        self._producers = (self._records, entries)
        self._newest: Position | None = None  # the position as this session knows it

    def fence(self) -> None:
        """End the transactions of this key, if the last one who wrote its position had any."""
        known = self.ledger.position(self.key)
        if known is not None and known.delivery == EXACTLY_ONCE:
            what = str(self.key.source)
            earlier = TransactionalProducer(self.key.transactional_id, what, self.target, self.settings, self.deadline)
            with closing(earlier):
                earlier.fence()
        self.transaction.fence()

    def close(self) -> None:
        for producer in self._producers:
            producer.close()

    def position(self) -> Position | None:
        self._newest = super().position()
        return self._newest

    def check_target(self, position: Position) -> None:
        super().check_target(position)
        self._after = self._known if self._after is None else self._after

    def begin_chunk(
        self,
        make: Callable[..., ChunkWriter],
        *,
        window: SendWindow,
        limits: Mapping[str, str],
        aside: AsideWriter | None = None,
    ) -> ChunkWriter:
        self._announce()
        self._records.begin_chunk()
        make = partial(AcknowledgedWriter, area=self._area, sender=self._records)
        return super().begin_chunk(make, window=window, limits=limits, aside=aside)

    def _announce(self) -> None:
        """Write the profile into the position, before the first record: after a crash, records behind the position are
        no reason to refuse the partition.
        """
        if self._newest is not None and self._newest.delivery == EXACTLY_ONCE:
            self._newest = replace(self._newest, delivery=self.delivery)
            self.move(self._newest)

    def _area(self, sent: int) -> Area:
        """Where so many records lie that were sent since the last chunk, and maybe records of others among them."""
        first, self._known = self._known, self._known + sent
        if self.delivery not in LOSSY:
            at = self.key.target
            self._known = max(self._known, offsets.high_watermarks(self.target_admin, [at])[at])
        return Area(first, self._known)

    def commit(self, position: Position, receipt: Receipt) -> None:
        """Write the receipt, and when it is acknowledged the new position. Raises Fenced if another copier did;
        OutOfTime if the range was given up, because it may be dealt to another copier then.
        """
        self.deadline.check_stopped(f"{self.key.source}: committing")
        self._check_newest()
        position = replace(position, delivery=self.delivery)
        self.ledger.write(self.transaction, self.key, replace(receipt, delivery=self.delivery, after=self._after))
        self.ledger.write(self.transaction, self.key, position)
        self.transaction.commit()
        self._newest = position
        if receipt.parts:
            self._after = position.target_end

    def _check_newest(self) -> None:
        if self.ledger.position(self.key) != self._newest:
            raise Fenced(
                f"{self.key.source}: another copier has written a position since this one read it",
                "run again when the other run has ended",
            )

    def move(self, position: Position, gap: Gap | None = None) -> None:
        super().move(replace(position, delivery=self.delivery), gap)
