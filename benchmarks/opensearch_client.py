"""A loop as somebody writes it who needs documents today: librdkafka's consumer and `parallel_bulk` of opensearch-py.

Two processes, each with half of the partitions. A document's id has topic, partition and offset, so that it can be
written twice; nothing is verified. Imports nothing of the product.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from opensearchpy import OpenSearch
from opensearchpy.helpers import parallel_bulk

from benchmarks.client_loop import messages

MODULE = "benchmarks.opensearch_client"


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexing:
    """One topic, whose partitions end at these offsets, and the index that its values go to. ``about``: each document
    has the fields by which it can be found and compared, too.
    """

    source: Mapping[str, Any]
    url: str
    topic: str
    to: str
    ends: Mapping[int, int]
    about: bool


def index_some(indexing: Indexing, partitions: list[int]) -> None:
    """Write the records of these partitions."""
    client = OpenSearch([indexing.url], timeout=60, pool_maxsize=4)
    made = parallel_bulk(
        client,
        _actions(indexing, partitions),
        thread_count=2,
        chunk_size=1_000,
        max_chunk_bytes=4 << 20,
        queue_size=2,
        expand_action_callback=_as_it_is,
    )
    deque(made, maxlen=0)


def _as_it_is(action: tuple[str, str]) -> tuple[str, str]:
    return action


def _actions(indexing: Indexing, partitions: list[int]) -> Iterator[tuple[dict[str, Any], Any]]:
    for message in messages(indexing.source, indexing.topic, {number: indexing.ends[number] for number in partitions}):
        partition, offset = message.partition(), message.offset()
        action = {"index": {"_index": indexing.to, "_id": f"{indexing.topic}-{partition}-{offset}"}}
        value = message.value().decode()
        if indexing.about:
            about = {
                "topic": indexing.topic,
                "partition": partition,
                "offset": offset,
                "timestamp": message.timestamp()[1],
                "key": message.key().decode(),
            }
            value = f'{value[:-1]},"kafka":{json.dumps(about)}}}'
        yield action, value
