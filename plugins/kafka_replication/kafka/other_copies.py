"""Reads a copy that another tool made: its records and those of its source, and what MirrorMaker 2 stored about it."""

from __future__ import annotations

import json
import struct
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import xxhash
from confluent_kafka import Consumer

from kafka_replication.config import Replication
from kafka_replication.copying.sink import Record
from kafka_replication.kafka import clients, offsets, topics
from kafka_replication.kafka.consumer_pool import borrowed
from kafka_replication.kafka.reading import PartitionReader, offset_of, record_of
from kafka_replication.model.errors import Refused, ReplicationError
from kafka_replication.model.offsets import OffsetRange, PartitionKey, TopicPartition, consumer_group
from kafka_replication.runtime import stopping
from kafka_replication.verification.auditing import Audit, Audited, Findings
from kafka_replication.verification.copied_by_others import TO_APPEND, Log, Row, find_end
from kafka_replication.verification.digests import record_digest

_AT_ONCE: Final = 10_000  # records


class Records:
    """The records of one cluster, for one consumer group. ``moved`` is called before each reading and amid it, and may
    raise.
    """

    def __init__(self, config: clients.ClientConfig, group: str, stall: float, moved: Callable[[], None]) -> None:
        self._config, self._group, self._stall, self._moved = config, group, stall, moved
        self.admin = clients.shared_admin(config)

    def log(self, at: TopicPartition, range_: OffsetRange) -> Log:
        """This part of a partition, to be compared."""
        return Log(
            range_,
            lambda wanted: map(_row, self.read(at, wanted)),
            lambda timestamp: offsets.at_time(self.admin, [at], timestamp)[at],
            lambda wanted: map(_row, self.read(at, wanted, clients.uncommitted_consumer)),
        )

    def read(
        self, at: TopicPartition, wanted: OffsetRange, make: Callable[..., Consumer] = clients.consumer
    ) -> Iterator[Record]:
        """Raises Refused for a record that this client cannot decode."""
        self._moved()
        with borrowed(self._config, self._group, make) as consumer:
            for number, message in enumerate(PartitionReader(consumer, at, self._stall).records(wanted), 1):
                if not number % _AT_ONCE:
                    self._moved()
                try:
                    yield record_of(message)
                except SystemError as error:
                    stopping.raise_again(error)
                    what = f"{at}: the record at offset {offset_of(message)} cannot be compared: {error}"
                    raise Refused(what, TO_APPEND) from error

    def whole(self, names: Iterable[str]) -> Iterator[Record]:
        """All records of these topics, each partition in its order."""
        counts = {name: len(described.partitions) for name, described in topics.descriptions(self.admin, names).items()}
        wanted = [TopicPartition(name, number) for name, count in counts.items() for number in range(count)]
        for at, log in offsets.readable_logs(self.admin, wanted, offsets.Patience()).items():
            yield from self.read(at, log)


def _row(record: Record) -> Row:
    offset, timestamp, key, value, headers = record
    key_digest = None if key is None else xxhash.xxh3_64_digest(key)
    return offset, record_digest(timestamp, key, value, headers), timestamp, key_digest


@dataclass(frozen=True, slots=True)
class Stored:
    """The notes of a tool about its copy of one partition: the next source offset, several if it copies topics of the
    same name from several clusters; and the source and target offsets of some records.
    """

    next_offsets: Collection[int] = ()
    syncs: Collection[tuple[int, int]] = ()


def both_sides(
    replication: Replication, source: clients.ClientConfig, target: clients.ClientConfig, moved: Callable[[], None]
) -> tuple[Records, Records]:
    """The records of both clusters, for the replication's consumer group. ``moved`` is as in `Records`."""
    group, stall = consumer_group(replication.name), replication.copying.stall_timeout
    return Records(source, group, stall, moved), Records(target, group, stall, moved)


def compare(task: Audit, key: PartitionKey, source: Records, target: Records) -> Audited:
    """The end of the copy of one partition, or the reason why it is not proved."""
    work = task.other_copy
    assert work is not None
    try:
        end = find_end(
            source.log(key.source, work.source),
            target.log(key.target, work.target),
            stored=work.stored,
            syncs=work.syncs,
            whole=work.whole,
            compacts=work.compacts,
        )
    except ReplicationError as error:
        return Audited(id=task.id, findings=Findings(errors=[error.what]), remedy=error.remedy)
    return Audited(id=task.id, findings=Findings(), copy_end=end)


def stored_by_mirrormaker(source: Records, target: Records) -> Mapping[TopicPartition, Stored]:
    """The notes of MirrorMaker 2, by source partition.

    Connect's offsets topic on the target has it (KIP-382). MirrorMaker on a Connect cluster has that topic elsewhere:
    then the newest offset sync is taken, which lies before it, from the topic on the source or on the target.
    """
    stored, syncs = (defaultdict[TopicPartition, set[Any]](set) for _ in range(2))
    newest = dict[bytes, bytes | None]()
    for _, _, key, value, _ in target.whole(_named(target, "mm2-offsets.")):
        newest[key or b""] = value
    try:
        for raw_key, raw_value in newest.items():
            connector = json.loads(raw_key)
            if raw_value and connector[1].keys() == {"cluster", "partition", "topic"}:
                at = TopicPartition(connector[1]["topic"], connector[1]["partition"])
                stored[at].add(json.loads(raw_value)["offset"] + 1)
        for side in (source, target):
            for _, _, key, value, _ in side.whole(_named(side, "mm2-offset-syncs")):
                if key and value:
                    length = struct.unpack_from(">h", key)[0]  # Kafka's STRING: int16 length, UTF-8; then an int32
                    at = TopicPartition(key[2 : 2 + length].decode(), struct.unpack_from(">i", key, 2 + length)[0])
                    syncs[at].add(struct.unpack_from(">qq", value))
    except (ValueError, LookupError, TypeError, AttributeError, struct.error) as error:
        what = f"a topic mm2-offsets* holds a record that MirrorMaker 2 does not write: {error!r}"
        raise Refused(what, "adopt --from data goes by the records alone") from error
    return {
        at: Stored(stored.get(at) or {max(syncs[at])[0] + 1}, syncs.get(at, ())) for at in stored.keys() | syncs.keys()
    }


def _named(side: Records, prefix: str) -> list[str]:
    """The separator of internal topics can be chosen (`replication.policy.separator`)."""
    return [name for name in topics.names(side.admin) if name.startswith(prefix) and name.endswith("internal")]
