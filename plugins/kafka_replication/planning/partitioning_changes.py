"""Finds a source partition's target partitions, and decides if copying goes on after a change of partitioning. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kafka_replication.ledger.entries import Ids, Position
from kafka_replication.ledger.view import partitioning_of
from kafka_replication.model.choices import EXACTLY_ONCE, KEEP, Partitioning
from kafka_replication.model.offsets import PartitionKey
from kafka_replication.model.trouble import Trouble
from kafka_replication.planning import refusals
from kafka_replication.planning.plan import State
from kafka_replication.planning.snapshot import Topic

# Keys: the ids of the topics, and True for `KEEP`. Values: a source partition that was copied so, and its partitioning.
SpreadBefore = Mapping[tuple[Ids, bool], tuple[PartitionKey, str]]
# Keys: the id of a target topic, and the number of one of its partitions. Values: one past our last record there.
Reach = Mapping[tuple[str, int], int]


def reach(positions: Mapping[PartitionKey, Position]) -> Reach:
    """The end of the records of all source partitions in each target partition."""
    ends = dict[tuple[str, int], int]()
    for key, position in positions.items():
        for number, end in position.ends(key.source.partition).items():
            at = position.ids.target_topic, number
            ends[at] = max(end, ends.get(at, 0))
    return ends


def problem_of(partitioning: Partitioning, key: PartitionKey, target: Topic | None) -> Trouble | None:
    """The reason why a target partition of this source partition cannot be used now; None if all can be used."""
    if target is None:
        return None
    numbers = partitioning.targets(key.source.partition, target.partitions)
    return next((problem for number in numbers if (problem := target.problem_of(number))), target.problem)


def refusal_of_partitions(
    partitioning: Partitioning, key: PartitionKey, source: Topic, partitions: Collection[int]
) -> Trouble | None:
    """The refusal if the target topic, with these ``partitions``, lacks one for a record of this source partition."""
    numbers = partitioning.targets(key.source.partition, partitions)
    if numbers and set(numbers) <= set(partitions):
        return None
    return refusals.fewer_partitions(key, source, len(partitions))


def spread_before(positions: Mapping[PartitionKey, Position]) -> SpreadBefore:
    """The facts about all source partitions that `refusal_beside` needs."""
    names = {key: name for key, position in sorted(positions.items()) if (name := partitioning_of(key, position))}
    return {(positions[key].ids, name == KEEP): (key, name) for key, name in reversed(names.items())}


def refusal_beside(partitioning: Partitioning, key: PartitionKey, ids: Ids, before: SpreadBefore) -> Trouble | None:
    """The refusal of a source partition without copied records, if other partitions of its topic were spread in another
    way. Without transactions a dead copier may have left records that no entry names.
    """
    if (ids, partitioning.keeps) in before or (ids, not partitioning.keeps) not in before:
        return None
    other, name = before[ids, not partitioning.keeps]
    return _repartitioned(key, f"{key.source}: records of {other.source}", name, partitioning)


def _repartitioned(key: PartitionKey, what: str, before: str, partitioning: Partitioning) -> Trouble:
    return refusals.refusal(
        State.REPARTITIONED,
        f"{what} were copied with partitioning {before}, the file says {partitioning.name}: later records of a key"
        " could come before earlier ones",
        f"set partitioning: {before} again; or replicate to another target topic (topics.rename), or re-create"
        f" {key.target_topic} and reset the topic: {refusals.reset_command(key)}",
    )


def refusal_of_change(
    partitioning: Partitioning, key: PartitionKey, position: Position, partitions: int, beside: SpreadBefore
) -> Trouble | None:
    """The refusal if the records after this position would be spread in another way than those before it, and may not
    be; None if they may be, or if it is the same way.
    """
    if position.spread is not None and position.delivery != EXACTLY_ONCE:
        return refusals.refusal(
            State.REPARTITIONED,
            f"{key.source}: its records below offset {position.next_offset} were copied to several partitions of"
            f" {key.target_topic} without transactions, which is no longer supported: it is unknown what dead attempts"
            " left there",
            "set delivery: exactly_once, and replicate to another target topic (topics.rename), or re-create"
            f" {key.target_topic} and reset the topic: {refusals.reset_command(key)}",
        )
    if partitioning.shared and position.delivery != EXACTLY_ONCE:
        return refusals.refusal(
            State.REPARTITIONED,
            f"{key.source}: its records below offset {position.next_offset} were copied with delivery:"
            f" {position.delivery}: what a dead attempt left of them in {key.target_topic} could not be told from"
            " records of others",
            "let a run with delivery: exactly_once and on_existing_target: refuse or append copy something, then share",
        )
    before = partitioning_of(key, position)
    if before is None:
        return refusal_beside(partitioning, key, position.ids, beside)
    if (before == KEEP) != partitioning.keeps:
        what = f"{key.source}: its records below offset {position.next_offset}"
        return _repartitioned(key, what, before, partitioning)
    was = position.spread.by.partitions if position.spread else partitions
    if was < partitions and partitioning.moves_keys() and partitioning.stated != partitions:
        return refusals.refusal(
            State.REPARTITIONED,
            f"{key.source}: {key.target_topic} has {partitions} partitions now and had {was} when the records below"
            f" offset {position.next_offset} were copied: with partitioning {partitioning.name}, later records of a key"
            " go to another partition than earlier ones",
            f"if the readers of {key.target_topic} are ready for that, set target_topics.partitions: {partitions};"
            f" else re-create the topic and reset it: {refusals.reset_command(key)}",
        )
    return None


def note_of_change(partitioning: Partitioning, key: PartitionKey, position: Position, partitions: int) -> str:
    """The effect for readers of a change that was not refused; empty if there is none."""
    by = position.spread.by if position.spread and position.coverage else None
    if by is None or (by.name, by.partitions) == (partitioning.name, partitions):
        return ""
    return (
        f"{key.source}: from offset {position.next_offset} on, records are spread by {partitioning.name} over"
        f" {partitions} partitions of {key.target_topic}, no longer by {by}: records of one"
        " key may lie in two partitions"
    )
