"""Defines which values go together in one replication: one table for the file, the planner, the engines and
docs/delivery.md.

A replication chooses one value on each axis. A `Rule` is about two axes: these values of the one do not go with those
values of the other. What no rule names is supported.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from kafka_replication.model.choices import (
    BUILT_IN,
    EXACTLY_ONCE,
    FUNCTION,
    KAFKA,
    KEEP,
    LATEST,
    PROFILES,
    SHAPES,
    TARGETS,
)

Axis = Literal[
    "delivery",
    "partitioning",
    "on_existing_target",
    "copy.engine",
    "failures",
    "pipeline",
    "target.type",
    "target.shape",
]
CHANGED: Final = "filter, transform or exclude_from"  # a pipeline that leaves out or changes records
NONE: Final = "none"
OWN: Final = "a class of your own"

# The values of each axis, as the file writes them; the first one is the default. On ``failures`` a replication can have
# several, one for each kind of failure.
AXES: Final[Mapping[Axis, tuple[str, ...]]] = {
    "delivery": PROFILES,
    "partitioning": (*BUILT_IN, FUNCTION),
    "on_existing_target": ("refuse", "append", "share"),
    "copy.engine": ("auto", "record", "batch"),
    "failures": ("fail", "quarantine", "skip"),
    "pipeline": (NONE, CHANGED),
    "target.type": (*TARGETS, OWN),
    "target.shape": SHAPES,
}
Choice = tuple[Axis, frozenset[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The reason why the values of ``one`` do not go with those of ``other``, and the values to write ``instead``.

    A rule that is ``softly`` kept refuses nothing: the record engine copies the ranges.
    """

    one: Choice
    other: Choice
    why: str
    instead: str
    softly: bool = False

    def concerns(self, chosen: Mapping[Axis, Collection[str]]) -> bool:
        """True if a replication with these values has a value of both sides."""
        return all(values.intersection(chosen.get(axis, ())) for axis, values in (self.one, self.other))


def _all_but(axis: Axis, *values: str) -> Choice:
    return axis, frozenset(AXES[axis]) - frozenset(values)


WITHOUT_TRANSACTIONS: Final = _all_but("delivery", EXACTLY_ONCE)
_BATCHES: Final[Choice] = ("copy.engine", frozenset({"auto", "batch"}))
_TRANSACTIONS: Final = "write 'delivery: exactly_once'"
_DOCUMENTS: Final[Choice] = _all_but("target.type", KAFKA)  # or rows: each at a place of its own
RULES: Final[tuple[Rule, ...]] = (
    Rule(
        one=WITHOUT_TRANSACTIONS,
        other=_all_but("partitioning", KEEP),
        why="several source partitions would write to one target partition, and only a transaction shows what a dead"
        " attempt left there",
        instead=f"{_TRANSACTIONS}, or 'partitioning: keep'",
    ),
    Rule(
        one=WITHOUT_TRANSACTIONS,
        other=("on_existing_target", frozenset({"share"})),
        why="a record of somebody else with the content of one of ours could not be distinguished from a duplicate",
        instead=f"{_TRANSACTIONS}, or 'on_existing_target: refuse' or 'append'",
    ),
    Rule(
        one=WITHOUT_TRANSACTIONS,
        other=("pipeline", frozenset({CHANGED})),
        why="what is lost or doubled is counted by content, which has to be that of the source",
        instead=f"{_TRANSACTIONS}, or remove filter, transform and topics.exclude_from",
    ),
    Rule(
        one=WITHOUT_TRANSACTIONS,
        other=_all_but("failures", "fail"),
        why="only a transaction sets a record aside together with its neighbours' receipt",
        instead=f"{_TRANSACTIONS}, or 'failures: {{policy: fail}}'",
    ),
    Rule(
        one=WITHOUT_TRANSACTIONS,
        other=_DOCUMENTS,
        why="a document or row that is written again is the same one: there is nothing that less would cost less",
        instead="remove 'delivery'",
    ),
    Rule(
        one=_all_but("partitioning", KEEP),
        other=_DOCUMENTS,
        why="an index or a table has no partitions: the id of a document or row has the source's",
        instead="remove 'partitioning'",
    ),
    Rule(
        one=_all_but("on_existing_target", "refuse"),
        other=_DOCUMENTS,
        why="documents or rows of others could not be told from lost or changed ones of ours",
        instead="write 'on_existing_target: refuse', and to an index or table of its own",
    ),
    Rule(
        one=("target.shape", frozenset({LATEST})),
        other=("target.type", frozenset({KAFKA})),
        why="a Kafka topic keeps every record until it compacts them by itself",
        instead="remove 'shape', and write 'target_topics: {config: {cleanup.policy: compact}}'",
    ),
    Rule(
        one=("target.shape", frozenset({LATEST})),
        other=("target.type", frozenset({OWN})),
        why="which record is newer, and where its key's partition is, the targets of this package alone decide",
        instead="write 'shape: records'",
    ),
    Rule(
        one=_BATCHES,
        other=_DOCUMENTS,
        why="each record is a document or a row",
        instead="leave it out: nothing is lost by it",
        softly=True,
    ),
    Rule(
        one=_BATCHES,
        other=WITHOUT_TRANSACTIONS,
        why="whole batches go with transactions only",
        instead=_TRANSACTIONS,
        softly=True,
    ),
    Rule(
        one=_BATCHES,
        other=_all_but("partitioning", KEEP),
        why="the records of one batch may belong to several target partitions",
        instead="write 'partitioning: keep'",
        softly=True,
    ),
    Rule(
        one=_BATCHES,
        other=("on_existing_target", frozenset({"share"})),
        why="records of others may lie between those of a batch",
        instead="write 'on_existing_target: refuse' or 'append'",
        softly=True,
    ),
    Rule(
        one=_BATCHES,
        other=("pipeline", frozenset({CHANGED})),
        why="records are filtered or changed",
        instead="remove filter, transform and topics.exclude_from",
        softly=True,
    ),
)


def refusal(chosen: Mapping[Axis, Collection[str]]) -> Rule | None:
    """The first rule that refuses a replication with these values; None if it is supported."""
    return next((rule for rule in RULES if not rule.softly and rule.concerns(chosen)), None)


def why_not_batches(chosen: Mapping[Axis, Collection[str]]) -> str | None:
    """The reason why the record engine copies every range with these values; None if batches are possible."""
    with_batches = {**chosen, "copy.engine": ("batch",)}
    return next((rule.why for rule in RULES if rule.softly and rule.concerns(with_batches)), None)
