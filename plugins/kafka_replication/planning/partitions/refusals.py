"""The reasons why a partition is not copied, and their remedies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kafka_replication.ledger.entries import ONE_WRITER, Ids, Position
from kafka_replication.model import commands
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.planning.plan import PartitionPlan, State
from kafka_replication.planning.snapshot import Problem, Topic


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why a partition is not copied: ``what`` happened to it and why, and the ``remedy``."""

    state: State
    what: str
    remedy: str


def reset_command(key: PartitionKey) -> str:
    """The command that resets the topic."""
    topic = key.source.topic
    return (
        f"kafka-replication reset {key.replication}.yaml --topic {topic} --confirm {topic} --target-topic"
        f" {key.target_topic}"
    )


def source_recreated(key: PartitionKey, position: Position, now: Ids) -> Refusal:
    was = position.ids
    return Refusal(
        State.SOURCE_RECREATED,
        f"{key.source}: the source topic was re-created (id {was.source_topic} in cluster {was.source_cluster} became"
        f" {now.source_topic} in {now.source_cluster}); offset {position.next_offset} now means other records",
        f"empty or re-create {key.target_topic} (or set on_existing_target: append), then reset the topic:"
        f" {reset_command(key)}",
    )


def target_recreated(key: PartitionKey, position: Position, now: str) -> Refusal:
    return Refusal(
        State.TARGET_RECREATED,
        f"{key.source}: the target topic {key.target_topic} was re-created or deleted (id {position.ids.target_topic}"
        f" became {now or 'none'}); copies below offset {position.next_offset} are gone with it",
        f"reset the topic, which copies it again from start_from: {reset_command(key)}",
    )


def ledger_lost(key: PartitionKey, watermark: int, position: int | None = None) -> Refusal:
    has = "has no entry" if position is None else f"ends at {position}"
    return Refusal(
        State.LEDGER_LOST,
        f"{key}: the store says everything below {watermark} was verified, but the ledger {has}: it was lost or went"
        " back",
        f"restore the ledger topics of the target, or empty {key.target_topic} and reset the topic:"
        f" {reset_command(key)}",
    )


def overrun(key: PartitionKey, lost: OffsetRange, log_start: int) -> Refusal:
    return Refusal(
        State.OVERRUN,
        f"{key.source}: offsets {lost} can no longer be read, the log now starts at {log_start}; nothing after them is"
        " copied",
        f"restore them at the source, or approve the gap: {commands.approve_gap(key, lost)}",
    )


def truncated(key: PartitionKey, position: Position, last_stable: int) -> Refusal:
    next_ = position.next_offset
    return Refusal(
        State.TRUNCATED,
        f"{key.source}: the source ends at {last_stable}, {next_ - last_stable} offsets below the position {next_}: it"
        " was truncated after its records were copied",
        "find out which records the source lost (unclean leader election, restored disk); no gap can be approved,"
        f" because the copies differ from the source now: re-create {key.target_topic} and reset the topic:"
        f" {reset_command(key)}",
    )


def contradicted(key: PartitionKey, contradictions: Sequence[str]) -> Refusal:
    return Refusal(
        State.CONTRADICTED,
        "the ledger contradicts itself: " + "; ".join(contradictions),
        "find out who changed the ledger topics, or what restored an older state of them; then restore their newest"
        f" state, or re-create {key.target_topic} and reset the topic: {reset_command(key)}",
    )


def target_truncated(key: PartitionKey, number: int, ours: int, end: int, mend: str | None) -> Refusal:
    """``mend`` is the file's; None if no run copies it again by itself, whatever the file says."""
    at, run = TopicPartition(key.target_topic, number), ""
    if mend:
        run = "set mend: repair in the file, which says report; then " if mend == "report" else ""
        run += (
            "the next run that is no backfill copies it again where receipts prove what stood there and the source"
            " still has it; where it says that it cannot, "
        )
    what = f"{at} on the target does not show our last record, which was at offset {ours - 1}: the target lost data"
    if end < ours:
        what = (
            f"{at} on the target ends at {end}, but our records were there up to {ours}: the target lost its last"
            f" {ours - end} offsets after they were copied"
        )
    return Refusal(
        State.TARGET_TRUNCATED,
        f"{key.source}: {what}",
        f"{run}find out what truncated or restored it (unclean leader election, restored disk); then re-create"
        f" {key.target_topic} and reset the topic: {reset_command(key)}",
    )


def foreign(key: PartitionKey, position: Position, offset: int) -> Refusal:
    return Refusal(
        State.FOREIGN,
        f"{key.source}: {_where(key, position)} on the target holds a record at offset {offset} that the ledger does"
        f" not know (ours end at {', '.join(map(str, position.ends(key.source.partition).values()))})",
        ONE_WRITER,
    )


def _where(key: PartitionKey, position: Position) -> str:
    """The target partitions that have records of the key."""
    return str(key.target) if position.spread is None else f"a partition of {key.target_topic}"


def unreadable(problem: Problem) -> Refusal:
    return Refusal(State.UNREADABLE, problem.what, problem.remedy)


def unfit(problem: Problem) -> Refusal:
    return Refusal(State.UNFIT, problem.what, problem.remedy)


def fewer_partitions(key: PartitionKey, source: Topic, partitions: int) -> Refusal:
    return Refusal(
        State.FEWER_PARTITIONS,
        f"{key.source}: {key.target_topic} has {partitions} partitions, the source {len(source.partitions)}",
        f"add partitions: kafka-topics.sh --alter --topic {key.target_topic} --partitions {len(source.partitions)}",
    )


def keys_moved(key: PartitionKey, source: Topic, partitions: int) -> Refusal:
    return Refusal(
        State.FEWER_PARTITIONS,
        f"{key.source}: {key.target_topic} has the newest record of each key of {partitions} partitions, and the source"
        f" has {len(source.partitions)} now: records of one key may lie in two of them, and have no order then",
        "reset the topic, and copy it to a new index (docs/latest.md)",
    )


def target_missing(key: PartitionKey) -> Refusal:
    return Refusal(
        State.TARGET_MISSING,
        f"{key.source}: the target topic {key.target_topic} does not exist and target_topics.create is false",
        "create it with at least as many partitions as the source, or set target_topics.create: true",
    )


def late_gap(key: PartitionKey, log_start: int) -> Refusal:
    unreadable = OffsetRange(0, log_start)
    return Refusal(
        State.LATE_GAP,
        f"{key.source} appeared after the replication began, and its offsets {unreadable} can no longer be read",
        f"approve the gap; the partition then starts at its current log start: {commands.approve_gap(key, unreadable)}",
    )


def vanished(source: TopicPartition, position: Position) -> Refusal:
    return Refusal(
        State.VANISHED,
        f"{source}: the source topic or partition is gone; its copy ends at {position.next_offset}",
        f"exclude {source.topic} from the replication if that is intended",
    )


def deleted(key: PartitionKey) -> str:
    """The note about a deleted source topic that a pattern had selected."""
    return (
        f"{key.source.topic}: the source topic was deleted, or this client may no longer describe it; its copies in"
        f" {key.target_topic} stay"
    )


def occupied(planned: PartitionPlan, where: TopicPartition, offset: int) -> PartitionPlan:
    """The plan of a new partition whose target has records that this replication did not copy."""
    key = planned.key
    return _not_opened(
        planned,
        f"{key.source}: {where} on the target already holds records (the first at offset {offset}) that"
        f" {key.replication} did not copy",
        "replicate to an empty topic (topics.rename), or set on_existing_target: append to write after them",
    )


def owned(key: PartitionKey, owner: str) -> Refusal:
    return Refusal(
        State.NOT_OPENED,
        f"{key.source}: the target topic {key.target_topic} belongs to the replication {owner}, as the ledger says; its"
        " records and ours would be mixed",
        f"replicate to another topic (topics.rename); if {owner} has ended for good, delete {key.target_topic}"
        " first (on_existing_target: append does not change this)",
    )


def not_openable(planned: PartitionPlan, problem: Problem) -> PartitionPlan:
    """The plan of a new partition whose target could not be searched for records of others."""
    return _not_opened(planned, f"{planned.key.source} was not opened: {problem.what}", problem.remedy)


def without_ledger(planned: PartitionPlan, because: str) -> PartitionPlan:
    """The plan of a new partition of a replication whose ledger was lost: the partition may have been copied before."""
    return _not_opened(
        planned,
        f"{planned.key.source} was not opened: the ledger has no entries, although the replication ran before"
        f" ({because})",
        "restore the ledger topics of the target, and run again",
    )


def _not_opened(planned: PartitionPlan, what: str, remedy: str) -> PartitionPlan:
    return replace(planned, state=State.NOT_OPENED, copy=None, what=what, remedy=remedy)
