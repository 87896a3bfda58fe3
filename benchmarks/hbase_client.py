"""A loop as somebody writes it who needs rows today: librdkafka's consumer and the batch of happybase.

Two processes, each with half of the partitions. A row's key has partition and offset, so that it can be written twice;
nothing is verified. Imports nothing of the product. happybase speaks to the gateway of the first kind (`hbase thrift`).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.client_loop import messages

MODULE = "benchmarks.hbase_client"
_KEY, _LONG = struct.Struct(">IQ"), struct.Struct(">q")


@dataclass(frozen=True, slots=True, kw_only=True)
class Putting:
    """One topic, whose partitions end at these offsets, and the table that its values go to. ``about``: each row has
    the cells by which a record can be found and compared, too.
    """

    source: Mapping[str, Any]
    port: int
    topic: str
    to: str
    ends: Mapping[int, int]
    about: bool


def put_some(putting: Putting, partitions: list[int]) -> None:
    """Write the records of these partitions."""
    import happybase

    connection = happybase.Connection("127.0.0.1", putting.port, timeout=120_000)
    with connection.table(putting.to).batch(batch_size=1_000) as batch:
        for message in messages(putting.source, putting.topic, {number: putting.ends[number] for number in partitions}):
            cells = {b"k:value": message.value()}
            if putting.about:
                cells |= {
                    b"k:key": message.key(),
                    b"k:headers": b"",
                    b"k:timestamp": _LONG.pack(message.timestamp()[1]),
                    b"k:offset": _LONG.pack(message.offset()),
                    b"k:origin": b'{"topic":"%s","partition":%d}' % (putting.topic.encode(), message.partition()),
                }
            batch.put(_KEY.pack(message.partition(), message.offset()), cells)
    connection.close()
