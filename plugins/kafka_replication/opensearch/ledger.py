"""The ledger in OpenSearch: see `journal`."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_replication.config import Replication
from kafka_replication.ledger.entries import POSITIONS, RECEIPTS, Entry, Position, Verified
from kafka_replication.ledger.newest import NewestEntries
from kafka_replication.ledger.port import Damaged
from kafka_replication.ledger.receipts import Receipts, offsets_to_read
from kafka_replication.ledger.record_keys import position_key, verified_key
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.errors import NotReady, Refused, ReplicationError
from kafka_replication.model.keys import LEDGER_PARTITIONS, PartitionKey
from kafka_replication.model.offsets import OffsetRange
from kafka_replication.opensearch.client import Answer, Client, path
from kafka_replication.opensearch.foresight import Foresight
from kafka_replication.opensearch.journal import (
    FORMAT,
    INDEX,
    MAPPING,
    Head,
    Journal,
    LedgerRecord,
    heads,
    key_text,
)
from kafka_replication.targets.unhidden import UnhiddenLedger


class OpenSearchLedger(UnhiddenLedger):
    """A `Ledger`. Nothing is ever hidden: a transaction is one write."""

    def __init__(self, client: Client, replication: str) -> None:
        self._client, self._replication = client, replication
        self.journal = Journal(client, replication)
        self._positions = NewestEntries(replication)
        self._read = dict[str, int]()  # by replication: all positions below this offset were read

    def exists(self) -> bool:
        found = self._client.found("GET", path(INDEX, "_mapping"))
        if found is None:
            return False
        about = next(iter(found.values()))["mappings"].get("_meta", {}).get("kafka_replication", {})
        if about.get("ledger") != FORMAT:
            raise Refused(
                f"the index {INDEX} on the target is no ledger of this version: its mapping says {about or 'nothing'}",
                "delete it if nobody needs it, or upgrade this installation",
            )
        return True

    def ensure(self, replication: Replication) -> None:
        if self.exists():
            return
        index = {"number_of_shards": 1, "translog.durability": "request"}
        try:
            self._client.json("PUT", path(INDEX), {"settings": {"index": index}, "mappings": MAPPING})
        except Answer as answer:
            if answer.kind != "resource_already_exists_exception":
                raise self._client.refused(answer) from answer

    def view(self, damaged: Damaged | None = None) -> LedgerView:
        if self.exists():
            own = self.journal.head()
            others = [head for head in heads(self._client) if head.replication != self._replication]
            for head in (*others, own):
                self._read_on(head)
            self._positions.log_foreign(POSITIONS)
        return self._positions.view(damaged)

    def _read_on(self, head: Head) -> None:
        since = self._read.get(head.replication, 0)
        if head.next_offset < since:  # the ledger was created again
            self._positions, self._read, since = NewestEntries(self._replication), {}, 0
        for record in self.journal.since(head, since, [POSITIONS]):
            _add(self._positions, record)
        self._read[head.replication] = head.next_offset

    def position(self, key: PartitionKey) -> Position | None:
        entry = self._newest(key, position_key(key))
        assert entry is None or isinstance(entry, Position)
        return entry

    def verified(self, key: PartitionKey) -> Verified | None:
        entry = self._newest(key, verified_key(key))
        assert entry is None or isinstance(entry, Verified)
        return entry

    def _newest(self, key: PartitionKey, record_key: bytes) -> Entry | None:
        record = self.journal.newest(POSITIONS, key.ledger_partition, key_text(record_key))
        if record is None:
            return None
        entries = NewestEntries(self._replication)
        _add(entries, record)
        newest = entries.get(key.ledger_partition, record_key)
        return newest.entry() if newest else None

    def receipts(self, wanted: Mapping[PartitionKey, int | None]) -> Receipts:
        head, entries = self.journal.head(), NewestEntries(self._replication)
        ends = _ends(head)
        since = offsets_to_read(wanted, ends)
        if wanted and head.at is not None:
            for record in self.journal.since(head, min(since.values()), [RECEIPTS]):
                _add(entries, record)
            entries.log_foreign(RECEIPTS)
        partitions = {key.ledger_partition for key in wanted}
        return entries.receipts(since, {number: OffsetRange(0, ends[number]) for number in partitions})

    def receipt_ends(self) -> Mapping[int, int]:
        return _ends(self.journal.head())

    def obstacle(self) -> ReplicationError | None:
        found = self._client.found("GET", path(INDEX, "_settings"), flat_settings=True)
        if not found:
            return None
        settings = next(iter(found.values()))["settings"]
        blocks = sorted(name for name, value in settings.items() if name in BLOCKS and value == "true")
        if not blocks:
            return Foresight(self._client).cannot_write(INDEX)
        return NotReady(
            f"the ledger {INDEX} on the target cannot be written: {', '.join(blocks)}",
            "free disk space if its node has none left, then remove the block; the next run goes on",
        )


BLOCKS = frozenset(f"index.blocks.{name}" for name in ("read_only", "read_only_allow_delete", "write"))


def _ends(head: Head) -> dict[int, int]:
    """Entries of all ledger partitions are numbered together."""
    return dict.fromkeys(range(LEDGER_PARTITIONS), head.next_offset)


def _add(entries: NewestEntries, record: LedgerRecord) -> None:
    value = None if record.value is None else record.value.encode()
    entries.add(record.topic, record.partition, record.offset, record.key.encode(), value)
