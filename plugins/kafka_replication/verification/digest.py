"""The digest of a sequence of records: equal digests mean the same records in the same order, byte for byte.

Each record is added field by field, after a packed header, so that no two different records add the same bytes. The
digest does not depend on how records are batched or compressed. It does not include offsets or the timestamp type.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import xxhash

if TYPE_CHECKING:  # only who has whole batches loads it
    from kafka_replication.wire.batch import Batch

DIGEST_KIND = "xxh3_128/1"
BATCH_DIGEST_KIND = "batches-xxh3_128/1"
Headers = Any  # a sequence of names and values (bytes or None), as the client gives them

_record = struct.Struct("<qiii").pack  # timestamp in ms, key length, value length, header count; -1 = null
# codec, last offset delta, record count, first timestamp in ms, bytes of records as they are stored
_batch = struct.Struct("<Biiqi").pack
_header = struct.Struct("<ii").pack  # name length in bytes, value length; -1 = null


def key_digest(key: bytes | None) -> str:
    """The digest by which logs and the store name a key; empty without a key."""
    return "" if key is None else xxhash.xxh3_128_hexdigest(key)


def record_digest(timestamp: int, key: bytes | None, value: bytes | None, headers: Headers | None) -> bytes:
    """The digest of one record, by which records are compared one by one."""
    fingerprint = Fingerprint()
    fingerprint.add(timestamp, key, value, headers)
    return fingerprint.hash.digest()


class Fingerprint:
    """The count, size and digest of the records that were added, in their order."""

    __slots__ = ("_update", "bytes", "count", "hash")

    def __init__(self) -> None:
        self.hash = xxhash.xxh3_128()
        self._update = self.hash.update
        self.count = 0
        self.bytes = 0

    def add(self, timestamp: int, key: bytes | None, value: bytes | None, headers: Headers | None) -> None:
        """Add one record; ``timestamp`` in ms since the epoch, -1 where the record has none."""
        update = self._update
        key_size = -1 if key is None else len(key)
        value_size = -1 if value is None else len(value)
        update(_record(timestamp, key_size, value_size, len(headers) if headers else 0))
        if key:
            update(key)
        if value:
            update(value)
        if headers:
            for name, content in headers:
                encoded = name.encode()
                update(_header(len(encoded), -1 if content is None else len(content)))
                update(encoded)
                if content:
                    update(content)
                self.bytes += len(encoded) + len(content or b"")
        self.count += 1
        self.bytes += (key_size if key_size > 0 else 0) + (value_size if value_size > 0 else 0)

    def hexdigest(self) -> str:
        return str(self.hash.hexdigest())


class BatchDigest:
    """The count and digest of stored record batches, in their order: their records, compressed as they are, and what
    decoding them needs. Equal digests mean equal records; the same records in other batches have another digest.

    A batch that is not as it was sent equals none that was. With ``message.timestamp.type=LogAppendTime`` its payload
    still has the producer's timestamps, but readers get the broker's.
    """

    __slots__ = ("count", "hash")

    def __init__(self) -> None:
        self.hash = xxhash.xxh3_128()
        self.count = 0

    def add_batch(self, batch: Batch) -> None:
        codec, size = batch.attributes & 0b111, len(batch.payload)
        if not batch.is_as_sent:
            self.hash.update(b"changed by the broker")
        self.hash.update(_batch(codec, batch.last_offset_delta, batch.count, batch.base_timestamp, size))
        self.hash.update(batch.payload)
        self.count += batch.count

    def hexdigest(self) -> str:
        return str(self.hash.hexdigest())
