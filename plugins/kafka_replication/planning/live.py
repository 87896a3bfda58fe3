"""Decide, purely, what a run has to do: which offset ranges to copy and to verify, or why not.

`plan` takes values and returns values. It is advisory: a copier decides again after it fenced its predecessors.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from kafka_replication.config import Replication
from kafka_replication.ledger.entries import Ids, Position
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import Coverage, OffsetRange, TopicPartition
from kafka_replication.planning import gaps
from kafka_replication.planning.snapshot import Snapshot, Topic

PLAN_FORMAT = 1


class State(StrEnum):
    """What the planner found for one partition."""

    IN_SYNC = "in sync"
    BEHIND = "behind"
    PENDING = "pending verification"
    OPENING = "not opened yet"
    SOURCE_RECREATED = "source topic re-created"
    TARGET_RECREATED = "target topic re-created"
    OVERRUN = "retention overran"
    TRUNCATED = "source truncated"
    LEDGER_LOST = "ledger lost"
    LATE_GAP = "appeared late, with a gap"
    FEWER_PARTITIONS = "fewer target partitions"
    TARGET_MISSING = "target topic missing"
    VANISHED = "topic vanished"
    NOT_OPENED = "could not be opened"


REFUSALS = frozenset(State) - {State.IN_SYNC, State.BEHIND, State.PENDING, State.OPENING}


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """What one partition's turn in this run is. ``copy`` and ``verify`` are source offsets."""

    key: PartitionKey
    state: State
    ids: Ids
    generation: int
    start: int
    position: int
    source_end: int
    watermark: int | None
    copy: OffsetRange | None = None
    verify: Coverage = Coverage()  # noqa: RUF009 - an immutable value
    leader_epoch: int | None = None
    what: str = ""
    remedy: str = ""

    @property
    def refused(self) -> bool:
        return self.state in REFUSALS

    def __str__(self) -> str:
        return f"{self.key.source} -> {self.key.target_topic}: {self.state}" + (
            f", copy {self.copy}" if self.copy else ""
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """One run's bounded work; stored with the run, so that a task tried again works on the same ranges."""

    replication: str
    partitions: tuple[PartitionPlan, ...]

    @property
    def to_copy(self) -> tuple[PartitionPlan, ...]:
        """Longest first, so that the last task to start is a short one."""
        return tuple(sorted((p for p in self.partitions if p.copy), key=lambda p: -(p.copy.span if p.copy else 0)))

    @property
    def refused(self) -> tuple[PartitionPlan, ...]:
        return tuple(p for p in self.partitions if p.refused)

    @property
    def pending(self) -> tuple[PartitionPlan, ...]:
        return tuple(p for p in self.partitions if p.verify)

    @property
    def to_account_for(self) -> tuple[PartitionPlan, ...]:
        """The partitions that a report names: something is to be copied or verified there, or is refused."""
        return tuple(p for p in self.partitions if p.copy or p.verify or p.refused)

    @property
    def workable(self) -> tuple[PartitionKey, ...]:
        """The partitions that the plan does not refuse."""
        return tuple(p.key for p in self.partitions if not p.refused)

    @property
    def idle(self) -> bool:
        return not (self.to_copy or self.pending)

    def encode(self) -> str:
        def row(p: PartitionPlan) -> dict[str, Any]:
            return asdict(p) | {
                "copy": [p.copy.from_, p.copy.until] if p.copy else None,
                "verify": p.verify.encode(),
            }

        return json.dumps(
            {"format": PLAN_FORMAT, "replication": self.replication, "partitions": [row(p) for p in self.partitions]}
        )

    @classmethod
    def decode(cls, text: str) -> Plan:
        """The inverse of `encode`. Raises ValueError for a format this version does not know."""
        value = json.loads(text)
        if value["format"] != PLAN_FORMAT:
            raise ValueError(f"the plan has format {value['format']!r}, this version knows {PLAN_FORMAT}")
        return cls(value["replication"], tuple(_row(each) for each in value["partitions"]))


def _row(value: dict[str, Any]) -> PartitionPlan:
    key = value.pop("key")
    return PartitionPlan(
        **{
            **value,
            "key": PartitionKey(key["replication"], TopicPartition(**key["source"]), key["target_topic"]),
            "state": State(value["state"]),
            "ids": Ids(**value["ids"]),
            "copy": OffsetRange(*value["copy"]) if value["copy"] else None,
            "verify": Coverage.decode(value["verify"]),
        }
    )


def plan(
    replication: Replication, snapshot: Snapshot, ledger: LedgerView, watermarks: Mapping[PartitionKey, int]
) -> Plan:
    """One entry per source partition the replication selects, and per known partition whose topic is gone."""
    mine = own(replication, ledger)
    planner = Planner(replication, snapshot, mine, watermarks, frozenset(key.source.topic for key in mine.positions))
    found = tuple(planner.all())
    refused = next((each for each in found if each.refused), None)
    if refused is not None and not mine.positions:
        found = tuple(_held_back(each, refused.what) if each.state is State.OPENING else each for each in found)
    return Plan(replication.name, (*found, *planner.pending_elsewhere(ledger)))


def own(replication: Replication, ledger: LedgerView) -> LedgerView:
    """The entries of the replication's own target topics; backfills to other target topics have entries of their
    own.
    """
    mine = {
        key: position
        for key, position in ledger.positions.items()
        if not replication.selects(key.source.topic) or replication.target_topic(key.source.topic) == key.target_topic
    }
    return LedgerView(
        mine,
        {key: each for key, each in ledger.verified.items() if key in mine},
        {key: each for key, each in ledger.gaps.items() if key in mine},
    )


def refuse_occupied(
    new: Collection[PartitionPlan], occupied: Mapping[PartitionKey, int], *, first: bool
) -> dict[PartitionKey, PartitionPlan]:
    """Which of the ``new`` partitions may not be opened, since a target of theirs holds records, from these offsets on.

    The ``first`` opening of a replication is all or nothing: what it left out would count as appeared later, and begin
    elsewhere.
    """
    found = {each.key: _occupied(each, occupied[each.key]) for each in new if each.key in occupied}
    if first and found:
        what = next(iter(found.values())).what
        found |= {each.key: _held_back(each, what) for each in new if each.key not in found}
    return found


def _occupied(each: PartitionPlan, offset: int) -> PartitionPlan:
    return replace(
        each,
        state=State.NOT_OPENED,
        copy=None,
        what=(
            f"{each.key.source}: {each.key.target} on the target already holds records (the first at offset {offset}) "
            f"that {each.key.replication} did not copy"
        ),
        remedy="replicate to an empty topic (topics.rename), or say on_existing_target: append to write behind them",
    )


def _held_back(each: PartitionPlan, because: str) -> PartitionPlan:
    return replace(
        each,
        state=State.NOT_OPENED,
        copy=None,
        what=f"{each.key.source}: not opened, for a replication begins as a whole; {because}",
        remedy="mend that, or exclude that topic, and run again",
    )


@dataclass(frozen=True, slots=True)
class Planner:
    """What `plan` finds for single partitions."""

    replication: Replication
    snapshot: Snapshot
    ledger: LedgerView
    watermarks: Mapping[PartitionKey, int]
    known: frozenset[str] = frozenset()  # source topics of which some partition was opened

    def all(self) -> Iterator[PartitionPlan]:
        seen = set()
        for name in sorted(self.snapshot.source):
            for number in sorted(self.snapshot.source[name].partitions):
                key = PartitionKey(
                    self.replication.name, TopicPartition(name, number), self.replication.target_topic(name)
                )
                seen.add(key)
                yield self.one(key)
        for key, position in sorted(self.ledger.positions.items(), key=lambda item: item[0]):
            if key not in seen and self.replication.selects(key.source.topic) and not self.left_behind(key, position):
                yield self.vanished(key, position)

    def left_behind(self, key: PartitionKey, position: Position) -> bool:
        """A partition that a re-created source topic no longer has, once the topic was reset."""
        source = self.snapshot.source.get(key.source.topic)
        others = (
            each.ids.source_topic for at, each in self.ledger.positions.items() if at.source.topic == key.source.topic
        )
        return source is not None and position.ids.source_topic != source.topic_id and source.topic_id in others

    def pending_elsewhere(self, ledger: LedgerView) -> Iterator[PartitionPlan]:
        """What backfills to other target topics left unverified, unless somebody deleted those topics since."""
        for key, position in sorted(ledger.positions.items(), key=lambda item: item[0]):
            target = self.snapshot.target.get(key.target_topic)
            if key in self.ledger.positions or target is None or target.topic_id != position.ids.target_topic:
                continue
            left = position.coverage.subtract(ledger.settled(key, position.generation))
            if left:
                yield PartitionPlan(
                    key,
                    State.PENDING,
                    position.ids,
                    position.generation,
                    position.start,
                    position.next_offset,
                    position.next_offset,
                    self.watermarks.get(key),
                    verify=left,
                )

    def one(self, key: PartitionKey) -> PartitionPlan:
        source = self.snapshot.source[key.source.topic]
        target = self.snapshot.target.get(key.target_topic)
        ids = Ids(self.snapshot.source_cluster, source.topic_id, target.topic_id if target else "")
        position = self.ledger.positions.get(key)
        if position is None:
            return self.unopened(key, source, target, ids)
        refusal = self.refusal(key, position, source, target, ids)
        if refusal:
            return self.entry(key, refusal[0], position, source, what=refusal[1], remedy=refusal[2])
        return self.work(key, position, source)

    def work(self, key: PartitionKey, position: Position, source: Topic) -> PartitionPlan:
        copy = self.next_range(key, position.next_offset, source)
        copied = position.coverage.subtract(self.ledger.settled(key, position.generation))
        state = State.BEHIND if copy else State.PENDING if copied else State.IN_SYNC
        return self.entry(key, state, position, source, copy=copy, verify=copied)

    def next_range(self, key: PartitionKey, from_: int, source: Topic) -> OffsetRange | None:
        until = source.partitions[key.source.partition].last_stable
        until = min(until, self.snapshot.until.get(key.source, until))
        if self.replication.max_records_per_run is not None:
            until = min(until, from_ + self.replication.max_records_per_run)
        return OffsetRange(from_, until) if from_ < until else None

    def unopened(self, key: PartitionKey, source: Topic, target: Topic | None, ids: Ids) -> PartitionPlan:
        offsets = source.partitions[key.source.partition]
        late = bool(self.ledger.positions)
        grown = key.source.topic in self.known
        start = offsets.log_start if late else self.snapshot.starts.get(key.source, offsets.log_start)
        fresh = Position(generation=1, ids=ids, start=start, next_offset=start)
        if key in self.watermarks:
            return self.entry(key, State.LEDGER_LOST, fresh, source, **_ledger_lost(key, self.watermarks[key]))
        if target and key.source.partition not in target.partitions:
            return self.entry(key, State.FEWER_PARTITIONS, fresh, source, **_fewer(key, source, target))
        if target is None and not self.replication.target_topics.create:
            return self.entry(key, State.TARGET_MISSING, fresh, source, **_missing(key))
        if late and offsets.log_start > 0 and (grown or self.replication.start_from != "earliest"):
            return self.entry(key, State.LATE_GAP, fresh, source, **_late(key, offsets.log_start))
        return self.entry(key, State.OPENING, fresh, source, copy=self.next_range(key, start, source))

    def refusal(
        self, key: PartitionKey, position: Position, source: Topic, target: Topic | None, ids: Ids
    ) -> tuple[State, str, str] | None:
        """The first reason not to go on from this position, most fundamental first."""
        offsets = source.partitions[key.source.partition]
        known, next_, at = position.ids, position.next_offset, key.source
        if (known.source_cluster, known.source_topic) != (ids.source_cluster, ids.source_topic):
            return (
                State.SOURCE_RECREATED,
                (
                    f"{at}: the source topic was re-created (id {known.source_topic} in cluster {known.source_cluster}"
                    f" became {ids.source_topic} in {ids.source_cluster}); offset {next_} now means other records"
                ),
                (
                    f"empty or re-create {key.target_topic} (or say on_existing_target: append), then start anew:"
                    f" {reset_command(key)}"
                ),
            )
        if target is None or known.target_topic != ids.target_topic:
            found = ids.target_topic if target else "none"
            return (
                State.TARGET_RECREATED,
                (
                    f"{at}: the target topic {key.target_topic} was re-created or deleted (id {known.target_topic}"
                    f" became {found}); copies below offset {next_} are gone with it"
                ),
                f"start anew, from where start_from says: {reset_command(key)}",
            )
        if self.watermarks.get(key, 0) > next_:
            return _refusal(State.LEDGER_LOST, _ledger_lost(key, self.watermarks[key], next_))
        lost = gaps.lost(position, offsets.log_start)
        if lost:
            return (
                State.OVERRUN,
                (
                    f"{at}: offsets {lost} can no longer be read, the log now starts at {offsets.log_start}; nothing"
                    " after them is copied"
                ),
                f"restore them at the source, or give them up: {gaps.command(key, lost)}",
            )
        if offsets.last_stable < next_:  # neither it nor the high watermark, which lies behind it, ever goes back
            return (
                State.TRUNCATED,
                (
                    f"{at}: the source ends at {offsets.last_stable}, {next_ - offsets.last_stable} offsets below the"
                    f" position {next_}: it was truncated after its records were copied"
                ),
                (
                    "find out which records the source lost (unclean leader election, restored disk); no gap can be"
                    " approved there, for what was copied differs from what the source has now: re-create"
                    f" {key.target_topic} and start anew: {reset_command(key)}"
                ),
            )
        if key.source.partition not in target.partitions:
            return _refusal(State.FEWER_PARTITIONS, _fewer(key, source, target))
        return None

    def vanished(self, key: PartitionKey, position: Position) -> PartitionPlan:
        return PartitionPlan(
            key,
            State.VANISHED,
            position.ids,
            position.generation,
            position.start,
            position.next_offset,
            position.next_offset,
            self.watermarks.get(key),
            what=f"{key.source}: the source topic or partition is gone; its copy ends at {position.next_offset}",
            remedy=f"exclude {key.source.topic} from the replication if that is intended",
        )

    def entry(self, key: PartitionKey, state: State, position: Position, source: Topic, **more: Any) -> PartitionPlan:
        return PartitionPlan(
            key,
            state,
            position.ids,
            position.generation,
            position.start,
            position.next_offset,
            source.partitions[key.source.partition].last_stable,
            self.watermarks.get(key),
            leader_epoch=position.leader_epoch,
            **more,
        )


def _refusal(state: State, words: dict[str, str]) -> tuple[State, str, str]:
    return state, words["what"], words["remedy"]


def reset_command(key: PartitionKey) -> str:
    """What to type to start the topic anew."""
    topic = key.source.topic
    return (
        f"kafka-replication reset {key.replication}.yaml --topic {topic} --confirm {topic} --target-topic"
        f" {key.target_topic}"
    )


def _ledger_lost(key: PartitionKey, watermark: int, position: int | None = None) -> dict[str, str]:
    has = "has no entry" if position is None else f"ends at {position}"
    return {
        "what": (
            f"{key}: the store says everything below {watermark} was verified, but the ledger {has}: it was lost or"
            " went back"
        ),
        "remedy": (
            f"bring back the ledger topics of the target, or empty {key.target_topic} and start anew:"
            f" {reset_command(key)}"
        ),
    }


def _fewer(key: PartitionKey, source: Topic, target: Topic) -> dict[str, str]:
    return {
        "what": (
            f"{key.source}: {key.target_topic} has {len(target.partitions)} partitions, the source"
            f" {len(source.partitions)}"
        ),
        "remedy": (
            f"add partitions: kafka-topics.sh --alter --topic {key.target_topic} --partitions {len(source.partitions)}"
        ),
    }


def _missing(key: PartitionKey) -> dict[str, str]:
    return {
        "what": f"{key.source}: the target topic {key.target_topic} does not exist and target_topics.create is false",
        "remedy": "create it with at least as many partitions as the source, or set target_topics.create: true",
    }


def _late(key: PartitionKey, log_start: int) -> dict[str, str]:
    return {
        "what": (
            f"{key.source} appeared after the replication began, and its offsets {OffsetRange(0, log_start)} can no"
            " longer be read"
        ),
        "remedy": (
            f"give them up, which opens it where its log starts now: {gaps.command(key, OffsetRange(0, log_start))}"
        ),
    }
