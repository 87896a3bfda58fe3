"""The reasons why a partition is not copied, and their remedies.

Gaps: source offsets that can no longer be read, and their approval.

Stores the starts of partitions that could not be opened at the first opening.

The first run resolves `start_from` for every partition. If one cannot be opened (its target has records, its leader is
away), its start must not change because of that: the ledger stores its `Start`, and a later run opens it there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from kafka_replication.config import Replication
from kafka_replication.config.expression import parse_time
from kafka_replication.ledger.entries import ONE_WRITER, Ids, Position, Seal, Start
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model import commands
from kafka_replication.model.errors import ReplicationError
from kafka_replication.model.offsets import OffsetRange, PartitionKey, TopicPartition
from kafka_replication.model.trouble import Trouble
from kafka_replication.planning import obstacles
from kafka_replication.planning.plan import PartitionPlan, State
from kafka_replication.planning.snapshot import Snapshot, Topic


def refusal(state: State, what: str, remedy: str) -> Trouble:
    """The reason why a partition is not copied: ``what`` happened to it and why, and the ``remedy``."""
    return Trouble("error", "", what, remedy, kind=state)


def reset_command(key: PartitionKey) -> str:
    """The command that resets the topic."""
    topic = key.source.topic
    return (
        f"kafka-replication reset {key.replication}.yaml --topic {topic} --confirm {topic} --target-topic"
        f" {key.target_topic}"
    )


def sealed(key: PartitionKey, seal: Seal, followed_by: str = "") -> Trouble:
    obstacle = obstacles.SEALED_AND_FOLLOWED if followed_by else obstacles.SEALED
    error = obstacle.refused(
        partition=key.source, seal=seal, topic=key.target_topic, replication=key.replication, other=followed_by
    )
    return refusal(State.SEALED, error.what, error.remedy)


def circular(key: PartitionKey, other: str) -> Trouble:
    return refusal(
        State.NOT_OPENED,
        f"{key.source}: the replication {other} copies {key.target} to it: its records would go round for ever",
        f"if this is the way back, kafka-replication failback {other}.yaml {key.replication}.yaml opens it when"
        f" {other} is sealed; else set transform: provenance and topics.exclude_from in both directions",
    )


def source_recreated(key: PartitionKey, position: Position, now: Ids) -> Trouble:
    was = position.ids
    return refusal(
        State.SOURCE_RECREATED,
        f"{key.source}: the source topic was re-created (id {was.source_topic} in cluster {was.source_cluster} became"
        f" {now.source_topic} in {now.source_cluster}); offset {position.next_offset} now means other records",
        f"empty or re-create {key.target_topic} (or set on_existing_target: append), then reset the topic:"
        f" {reset_command(key)}",
    )


def target_recreated(key: PartitionKey, position: Position, now: str) -> Trouble:
    return refusal(
        State.TARGET_RECREATED,
        f"{key.source}: the target topic {key.target_topic} was re-created or deleted (id {position.ids.target_topic}"
        f" became {now or 'none'}); copies below offset {position.next_offset} are gone with it",
        f"reset the topic, which copies it again from start_from: {reset_command(key)}",
    )


def ledger_lost(key: PartitionKey, watermark: int, position: int | None = None) -> Trouble:
    has = "has no entry" if position is None else f"ends at {position}"
    return refusal(
        State.LEDGER_LOST,
        f"{key}: the store says everything below {watermark} was verified, but the ledger {has}: it was lost or went"
        " back",
        f"restore the ledger topics of the target, or empty {key.target_topic} and reset the topic:"
        f" {reset_command(key)}",
    )


def overrun(key: PartitionKey, lost: OffsetRange, log_start: int) -> Trouble:
    return refusal(
        State.OVERRUN,
        f"{key.source}: offsets {lost} can no longer be read, the log now starts at {log_start}; nothing after them is"
        " copied",
        f"restore them at the source, or approve the gap: {commands.approve_gap(key, lost)}",
    )


def truncated(key: PartitionKey, position: Position, last_stable: int) -> Trouble:
    next_ = position.next_offset
    return refusal(
        State.TRUNCATED,
        f"{key.source}: the source ends at {last_stable}, {next_ - last_stable} offsets below the position {next_}: it"
        " was truncated after its records were copied",
        "find out which records the source lost (unclean leader election, restored disk); no gap can be approved,"
        f" because the copies differ from the source now: re-create {key.target_topic} and reset the topic:"
        f" {reset_command(key)}",
    )


def contradicted(key: PartitionKey, contradictions: Sequence[str]) -> Trouble:
    return refusal(
        State.CONTRADICTED,
        "the ledger contradicts itself: " + "; ".join(contradictions),
        "find out who changed the ledger topics, or what restored an older state of them; then restore their newest"
        f" state, or re-create {key.target_topic} and reset the topic: {reset_command(key)}",
    )


def target_truncated(key: PartitionKey, number: int, ours: int, end: int, mend: str | None) -> Trouble:
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
    return refusal(
        State.TARGET_TRUNCATED,
        f"{key.source}: {what}",
        f"{run}find out what truncated or restored it (unclean leader election, restored disk); then re-create"
        f" {key.target_topic} and reset the topic: {reset_command(key)}",
    )


def foreign(key: PartitionKey, position: Position, offset: int) -> Trouble:
    where = key.target if position.spread is None else f"a partition of {key.target_topic}"
    return refusal(
        State.FOREIGN,
        f"{key.source}: {where} on the target holds a record at offset {offset} that the ledger does"
        f" not know (ours end at {', '.join(map(str, position.ends(key.source.partition).values()))})",
        ONE_WRITER,
    )


def fewer_partitions(key: PartitionKey, source: Topic, partitions: int) -> Trouble:
    return refusal(
        State.FEWER_PARTITIONS,
        f"{key.source}: {key.target_topic} has {partitions} partitions, the source {len(source.partitions)}",
        f"add partitions: kafka-topics.sh --alter --topic {key.target_topic} --partitions {len(source.partitions)}",
    )


def keys_moved(key: PartitionKey, source: Topic, partitions: int) -> Trouble:
    return refusal(
        State.FEWER_PARTITIONS,
        f"{key.source}: {key.target_topic} has the newest record of each key of {partitions} partitions, and the source"
        f" has {len(source.partitions)} now: records of one key may lie in two of them, and have no order then",
        "reset the topic, and copy it to a new index (docs/latest.md)",
    )


def target_missing(key: PartitionKey) -> Trouble:
    return refusal(
        State.TARGET_MISSING,
        f"{key.source}: the target topic {key.target_topic} does not exist and target_topics.create is false",
        "create it with at least as many partitions as the source, or set target_topics.create: true",
    )


def late_gap(key: PartitionKey, log_start: int) -> Trouble:
    unreadable = OffsetRange(0, log_start)
    return refusal(
        State.LATE_GAP,
        f"{key.source} appeared after the replication began, and its offsets {unreadable} can no longer be read",
        f"approve the gap; the partition then starts at its current log start: {commands.approve_gap(key, unreadable)}",
    )


def vanished(source: TopicPartition, position: Position) -> Trouble:
    return refusal(
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
        "if another tool copied them from this source, go on behind them (kafka-replication adopt); else replicate to"
        " an empty topic (topics.rename), or set on_existing_target: append to write after them",
    )


def owned(key: PartitionKey, owner: str) -> Trouble:
    return refusal(
        State.NOT_OPENED,
        f"{key.source}: the target topic {key.target_topic} belongs to the replication {owner}, as the ledger says; its"
        " records and ours would be mixed",
        f"replicate to another topic (topics.rename); if {owner} has ended for good, delete {key.target_topic}"
        " first (on_existing_target: append does not change this)",
    )


def not_openable(planned: PartitionPlan, problem: ReplicationError) -> PartitionPlan:
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
    return planned.refusing(refusal(State.NOT_OPENED, what, remedy))


def first_gap(position: Position, log_start: int) -> OffsetRange | None:
    """The first range after the position that is neither on the target nor readable; None if there is none.

    If a backfill copied offsets in between, there can be further ranges. Each range is approved separately.
    """
    if log_start <= position.next_offset:
        return None
    return next(iter(position.left_of(OffsetRange(position.next_offset, log_start))), None)


def starts_to_write(
    replication: Replication,
    snapshot: Snapshot,
    own_entries: LedgerView,
    refused: tuple[PartitionPlan, ...],
    time: str,
) -> dict[PartitionKey, Start]:
    """The starts of the ``refused`` partitions of the first opening that the ledger does not have yet.

    ``own_entries`` are those for the replication's own target topics, ``time`` is now.
    """
    starts = {}
    for key in (planned.key for planned in refused if planned.state is not State.LEDGER_LOST):
        before, source = own_entries.starts.get(key), snapshot.source.get(key.source.topic)
        if key in own_entries.positions or source is None or not source.topic_id:
            continue
        if replication.target_problem(key.source.topic):
            continue  # a legal name will be another key
        if own_entries.begun and not is_for(before, snapshot, key):
            continue  # it appeared later
        stays = before is not None and is_valid(replication, snapshot, before, key)
        start = Start(
            source_cluster=snapshot.source_cluster,
            source_topic=source.topic_id,
            start_from=start_text(replication),
            offset=start_of(replication, snapshot, before, key),
            time=before.time if before and stays else time,
        )
        if before is None or start != replace(before, extra={}):
            starts[key] = start
    return starts


def start_of(replication: Replication, snapshot: Snapshot, before: Start | None, key: PartitionKey) -> int | None:
    """The start of a partition of the first opening: the offset that was stored then, else that of `start_from` now.

    None if it is not known, because the partition does not answer.
    """
    if before is not None and before.offset is not None and is_valid(replication, snapshot, before, key):
        return before.offset
    offsets = snapshot.source[key.source.topic].partitions[key.source.partition]
    return None if isinstance(offsets, Trouble) else snapshot.starts.get(key.source, offsets.log_start)


def unresolved(replication: Replication, own_entries: LedgerView) -> dict[TopicPartition, datetime]:
    """The partitions that did not answer at the first opening, and its time: `latest` means their end at that time."""
    return {
        key.source: parse_time(start.time)
        for key, start in own_entries.starts.items()
        if start.offset is None and start.start_from == start_text(replication)
    }


def is_for(start: Start | None, snapshot: Snapshot, key: PartitionKey) -> bool:
    """True if a start was stored for this source topic, and not for an older one of the same name."""
    ids = (snapshot.source_cluster, snapshot.source[key.source.topic].topic_id)
    return start is not None and (start.source_cluster, start.source_topic) == ids


def is_valid(replication: Replication, snapshot: Snapshot, start: Start, key: PartitionKey) -> bool:
    """True if the stored start is for this source topic, and for the present `start_from` of the replication file."""
    return is_for(start, snapshot, key) and start.start_from == start_text(replication)


def start_text(replication: Replication) -> str:
    """`start_from` in the form of a ledger entry."""
    start = replication.start_from
    return start if isinstance(start, str) else start.isoformat()
