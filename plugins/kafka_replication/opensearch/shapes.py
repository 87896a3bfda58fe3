"""Records become documents: each its own (`EachRecord`), or the newest one of each key (`NewestOfKey`)."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import ClassVar, Final, Protocol

from kafka_replication.model.failures import Failure
from kafka_replication.opensearch.bulk import Item, item
from kafka_replication.opensearch.documents import Documents, NoDocument, Origin, failure_of
from kafka_replication.sinks.port import Record
from kafka_replication.targets.chunk_places import ChunkPlaces, NewestPlaces, OffsetPlaces
from kafka_replication.targets.keyed import KeyedPartition, NoPlace, version

MOST_ID_BYTES: Final = 512
_ENCODED: Final = "base64:"


class Making(Protocol):
    """Makes the documents of one origin."""

    @property
    def takes_back(self) -> bool:
        """True if what was written and not committed can be deleted: nothing else was there before."""

    def id(self, record: Record) -> str:
        """The id of the record's document. Raises NoPlace."""

    def item(self, record: Record, session: int) -> Item:
        """The document of a record, as the session of this number writes it. Raises NoPlace."""

    def refusal(self, record: Record) -> Failure | None:
        """The failure of a record that cannot be a document."""

    def places(self, *, digests: bool) -> ChunkPlaces:
        """Of a new chunk. Without ``digests`` no record is left out."""


@dataclass(frozen=True, slots=True)
class EachRecord:
    """Every record is a document, whose id has its offset and whose version is the number of the session."""

    takes_back: ClassVar[bool] = True
    origin: Origin
    documents: Documents

    def id(self, record: Record) -> str:
        return self.origin.id(record[0])

    def item(self, record: Record, session: int) -> Item:
        return item(record[0], self.id(record), session, self.documents.encoded(record))

    def refusal(self, record: Record) -> Failure | None:
        return self.documents.refusal(record)

    def places(self, *, digests: bool) -> OffsetPlaces:
        return OffsetPlaces(self.origin.source.partition, digests=digests)


@dataclass(frozen=True, slots=True)
class NewestOfKey:
    """The document's id is the key, and its version tells how new the record is."""

    takes_back: ClassVar[bool] = False
    origin: Origin
    documents: Documents
    keys: KeyedPartition

    def item(self, record: Record, session: int) -> Item:  # the same for every session
        offset, id_ = record[0], self.id(record)
        number = version(self.origin.generation, offset)
        action = f'{{"index":{{"_id":{json.dumps(id_)},"version":{number},"version_type":"external"}}}}\n'
        return Item(offset, action.encode() + self.documents.encoded(record) + b"\n")

    def id(self, record: Record) -> str:
        id_ = id_of(self.keys.key(record))
        if (size := len(id_.encode())) > MOST_ID_BYTES:
            raise NoDocument(f"its key makes an id of {size} bytes, and {MOST_ID_BYTES} is the most")
        return id_

    def refusal(self, record: Record) -> Failure | None:
        try:
            self.item(record, 0)
        except NoPlace as error:
            return failure_of(record, error)
        return None

    def places(self, *, digests: bool) -> NewestPlaces:  # what is left out changes nothing
        return NewestPlaces(self.origin.source.partition)


def id_of(key: bytes) -> str:
    """The id of a key's document: its text, or what begins with ``base64:`` and is its base64. No two keys have one."""
    try:
        text = key.decode()
    except UnicodeDecodeError:
        text = ""
    return text if text and not text.startswith(_ENCODED) else f"{_ENCODED}{b64encode(key).decode()}"


def key_of(id_: str) -> bytes:
    """The key whose document has this id."""
    return b64decode(id_.removeprefix(_ENCODED)) if id_.startswith(_ENCODED) else id_.encode()
