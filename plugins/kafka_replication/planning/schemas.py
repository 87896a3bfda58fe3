"""The log of a Confluent Schema Registry, its topic `_schemas`: which id stands for which schema, on both sides, and
which ids of records nobody knows. Pure.

What is said of the log comes from the source of confluentinc/schema-registry (`storage/SchemaKey.java`,
`SchemaValue.java`, `KafkaStore.java`): keys and values are JSON, a record without a value deletes its key, and the
topic has one partition and is compacted.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kafka_replication.config import Replication
from kafka_replication.config.names import PROVENANCE
from kafka_replication.model.choices import KAFKA
from kafka_replication.model.offsets import PartitionKey, TopicPartition
from kafka_replication.model.trouble import NAMED, Trouble
from kafka_replication.planning.plan import PartitionPlan, Plan
from kafka_replication.planning.snapshot import Topic
from kafka_replication.planning.topic_settings import created_config

TOPIC: Final = "_schemas"  # the default of the registry's kafkastore.topic
WAITS: Final = f"not copied: {TOPIC} is copied first, and that failed or was refused"
WAITS_REMEDY: Final = f"do what is said of {TOPIC}, then run again; or leave it out: topics.exclude: [{TOPIC}]"
LEAVE_OUT: Final = f"or leave it out: topics.exclude: [{TOPIC}]"
Id = tuple[str, int]  # the context and the number: each context counts its own ids


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a subject, as a record has it: the id and a digest of its schema; None: it was deleted."""

    offset: int
    subject: str
    number: int
    schema: tuple[int, bytes] | None


def version_of(offset: int, key: bytes | None, value: bytes | None) -> Version | None:
    """The version in this record of the log; None for a record of another kind, and for one that no registry can read.

    A version that is marked as deleted keeps its id: records that have it can still be read.
    """
    match _json(key):
        case {"keytype": "SCHEMA", "subject": str(subject), "version": int(number)}:
            pass
        case _:
            return None
    if value is None:
        return Version(offset, subject, number, None)
    match _json(value):
        case {"id": int(id_), "schema": str(text), **more}:
            whole = [more.get("schemaType") or "AVRO", text, more.get("references") or []]
            digest = hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).digest()
            return Version(offset, subject, number, (id_, digest))
    return None


def _json(data: bytes | None) -> object:
    try:
        return json.loads(data or b"null")
    except (ValueError, RecursionError):  # the former also for bytes that are no text
        return None


def standing(log: Iterable[Version]) -> dict[tuple[str, int], Version]:
    """The last word on each version that was not deleted since, as a compacted log has it."""
    last = {(version.subject, version.number): version for version in log}
    return {at: version for at, version in last.items() if version.schema}


def ids(versions: Iterable[Version]) -> dict[Id, dict[bytes, Version]]:
    """The schemas of each id by their digests. A registry gives an id to one schema, in all subjects that have it."""
    found = dict[Id, dict[bytes, Version]]()
    for version in versions:
        if version.schema is not None:
            id_, digest = version.schema
            named = version.subject.startswith(":.")  # as in `:.context:subject`
            context = version.subject[1:].partition(":")[0] if named else "."
            found.setdefault((context, id_), {}).setdefault(digest, version)
    return found


def other_ids(source: Sequence[Version], target: Sequence[Version], *, position: int, ours: int) -> list[str]:
    """The ids of the target that speak against copying, each as a text; at most `NAMED` of them, and how many more.

    Both logs are whole. Records of the target below the offset ``ours`` were copied, up to the source offset
    ``position``; what they have and the source no longer has was deleted there. What others wrote there has to be equal
    to what the source has: an id of the target's own may be given away at the source tomorrow.
    """
    here = ids(standing(source).values())
    behind = [version for version in source if version.offset >= position]
    mine = [version for version in target if version.offset < ours]
    copied = ids(standing([*mine, *behind]).values()) if ours else {}
    theirs = ids(version for version in standing(target).values() if version.offset >= ours)
    texts = list[str]()
    for known, foreign in ((copied, False), (theirs, True)):
        for (context, id_), schemas in sorted(known.items()):
            at_source = here.get((context, id_), {})
            for digest, version in schemas.items():
                if digest in at_source or not (at_source or foreign):
                    continue
                of = f"id {id_}{'' if context == '.' else f' of context {context}'}"
                other = " and ".join(f"{_name(one)} with another schema" for one in at_source.values())
                texts.append(f"{of} is {_name(version)} there, and {other or 'nothing'} at the source")
    more = len(texts) - NAMED
    return texts if more <= 0 else [*texts[:NAMED], f"and {more} more"]


def _name(version: Version) -> str:
    return f"{version.subject} version {version.number}"


def refusal(where: str, texts: Iterable[str]) -> Trouble:
    """The finding that no topic of the file is copied because of ids of the target."""
    return Trouble(
        "error",
        where,
        f"the target's registry has other ids than the source's: {'; '.join(texts)}. No topic of the file is copied,"
        " because readers of the target would take records for those of another schema",
        "stop the registry that writes to that topic and delete the topic (and reset it, if copies are in it); or give"
        f" the copy another name (topics.rename); {LEAVE_OUT}",
    )


def fit(replication: Replication, source: Topic, target: Topic | None) -> Iterator[Trouble]:
    """The findings about `_schemas`, beyond those of any topic: what a registry would not accept."""
    if source.name != TOPIC or replication.target.type != KAFKA:
        return
    name = replication.target_name(TOPIC)
    where, stated = f"{TOPIC} -> {name}", replication.placing.stated
    partitions = len(target.partitions) if target else stated or len(source.partitions)
    config = target.config if target else created_config(source.config, replication.target_topics.of(TOPIC))
    if partitions != 1:
        what = (
            f"the target {'has' if target else 'would get'} {partitions} partitions; a schema registry accepts only one"
        )
        yield Trouble("error", where, what, f"create {name} with one partition, compacted; {LEAVE_OUT}")
    if config.get("cleanup.policy", "delete") != "compact":
        what = f"the target {'has' if target else 'would get'} cleanup.policy={config.get('cleanup.policy', 'delete')}"
        remedy = f"set cleanup.policy=compact {f'on {name}' if target else 'in target_topics.overrides'}; {LEAVE_OUT}"
        yield Trouble("error", where, f"{what}; a schema registry accepts only compact, and would lose schemas", remedy)
    if replication.filter or set(replication.transform) - {PROVENANCE}:
        what = "filter and transform would leave out or change schemas"
        yield Trouble("error", where, what, f"replicate {TOPIC} with a file of its own; {LEAVE_OUT}")
    if name != TOPIC:
        what = "a registry on the target does not find its schemas under this name by itself"
        yield Trouble("warning", where, what, f"set kafkastore.topic={name} for it, or correct topics.rename")


def is_refused(plan: Plan, failed: Container[PartitionKey]) -> bool:
    """True if `_schemas` belongs to the plan and cannot be copied, so that the other topics wait."""
    mine = (one for one in plan.partitions if one.key.source.topic == TOPIC)
    return any(one.refused or one.key in failed for one in mine)


def in_turn(part: Sequence[PartitionPlan], *, refused: bool) -> Sequence[PartitionPlan]:
    """The part of a slice that is copied now: `_schemas` alone while it has work left; nothing if it is refused."""
    first = [one for one in part if one.key.source.topic == TOPIC]
    return first or ([] if refused else part)


def wire_id(data: bytes | None) -> int | None:
    """The schema id with which serializers of a registry begin a key or a value: the byte 0, then four bytes. None if
    it does not begin so. An id is above 0: a small integer in eight bytes begins with zeros.
    """
    if data is None or len(data) < 5 or data[0] != 0:
        return None
    id_ = int.from_bytes(data[1:5])
    return id_ if 0 < id_ < 1 << 31 else None


Sampled = tuple[TopicPartition, int, bytes | None, bytes | None]  # offset, key, value


def unknown(sampled: Iterable[Sampled], known: Collection[int], where: str) -> list[Trouble]:
    """A warning for each topic of which records begin with an id that is not ``known`` ``where`` it was looked for."""
    examples = dict[tuple[str, str], dict[int, str]]()
    for at, offset, key, value in sampled:
        for part, data in (("keys", key), ("values", value)):
            if (id_ := wire_id(data)) is not None and id_ not in known:
                examples.setdefault((at.topic, part), {}).setdefault(id_, f"{id_} ({at} at offset {offset})")
    return [_unknown(topic, part, found, where) for (topic, part), found in sorted(examples.items())]


def _unknown(topic: str, part: str, found: Mapping[int, str], where: str) -> Trouble:
    named = ", ".join(text for _, text in sorted(found.items())[:NAMED])
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return Trouble(
        "warning",
        topic,
        f"{part} of its last records begin as the serializers of a schema registry write them, with ids that {where}"
        f" does not have: {named}{more}",
        f"select {TOPIC} of the source as well, or find out which registry gave them; nothing has to be done if these"
        " bytes are no schema ids",
        topic=topic,
    )
