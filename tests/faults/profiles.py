"""Kinds of replication under which the whole fault table can run: FAULT_PROFILE=name.

Each says what the replication's file has beside the usual, and, by itself and without the product, what the target must
then have for each record of the source.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kafka_replication import transforms
from kafka_replication.model import choices
from kafka_replication.model.choices import EXACTLY_ONCE
from tests.support.checker import Record

VARIABLE = "FAULT_PROFILE"


def unchanged(record: Record) -> Sequence[Record]:
    return (record,)


@dataclass(frozen=True)
class Profile:
    """``made`` are the records that the target must have of one record of the source. What is ``aside`` must be in the
    quarantine topic instead, as it is at the source. ``copy`` is added to the settings that all trials copy with, ``load`` to
    those of the load's producers. Partitions and chunks have ``longer`` times as many records as usual. ``engine`` has to
    copy at least one chunk in each run of a row that heals. ``target`` is added to how the target is named. ``newest``: of
    each key the target must have the newest record alone, and only the rows of targets that can do this mean anything.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    made: Callable[[Record], Sequence[Record]] = unchanged
    aside: Callable[[Record], bool] | None = None  # None: nothing is quarantined
    leaves_out: Mapping[str, str] = field(default_factory=dict)  # rows that mean nothing here, and why
    copy: Mapping[str, Any] = field(default_factory=dict)
    load: Mapping[str, Any] = field(default_factory=dict)
    longer: int = 1
    engine: str = ""  # any
    target: Mapping[str, Any] = field(default_factory=dict)
    newest: bool = False

    @property
    def delivery(self) -> str:
        return str(self.settings.get("delivery", EXACTLY_ONCE))

    @property
    def spread(self) -> bool:
        """Whether records of a source partition lie in several target partitions."""
        return "partitioning" in self.settings


def split(record: transforms.Record) -> list[transforms.Record]:
    """None, two or one, by the time of the record."""
    if record.timestamp % 5 == 0:
        return []
    headers = (*record.headers, ("split", b"1"))
    if record.timestamp % 5 == 1:
        return [
            record.replace(headers=headers),
            record.replace(headers=headers, value=(record.value or b"") + b" again"),
        ]
    return [record.replace(headers=headers)]


def failing(record: transforms.Record) -> transforms.Record:
    """Fails for every seventh record, by its time."""
    if record.timestamp % 7 == 0:
        raise ValueError(record.timestamp)
    return record


def _fails(record: Record) -> bool:
    return record.timestamp % 7 == 0


def _split(record: Record) -> Sequence[Record]:
    if record.key is not None and record.key.endswith(b"7"):
        return ()
    first = replace(record, headers=(*record.headers, ("split", b"1")))
    again = replace(first, value=(record.value or b"") + b" again")
    return {0: (), 1: (first, again)}.get(record.timestamp % 5, (first,))


_TOLD_APART = "it is told from duplicates when it is read back, with another message"
_ALL_ENGINES = "it takes turns with the engines by itself"
_UNHEARD = "nobody hears of a refused record"
LOST_DURING = (
    "target-end-lost-during",
    "target-end-lost-during-several",
    "target-end-lost-during-tried-again",
    "target-end-lost-during-several-tried-again",
    "target-end-lost-during-elected",
)
HALF_DONE = (
    *LOST_DURING,
    "target-commit-partial",
    "target-commit-partial-replicas",
    "target-commit-partial-given-up",
    "target-commit-partial-mending-killed",
    "target-commit-partial-mending-fenced",
    "target-commit-partial-two-mend",
    "target-commit-partial-dropped",
    "target-abort-partial",
    "target-end-lost",
    "target-ledger-commit-partial",
    "target-ledger-commit-partial-dropped",
)
WITHOUT_TRANSACTIONS = {
    **dict.fromkeys(HALF_DONE, "no commit is partial, and the end of a log is lost in another way"),
    "target-coordinator-killed": "no transaction has one",
    "target-endtxn-answer-lost": "no transaction is ended",
    "target-foreign-writer": _TOLD_APART,
    "target-foreign-writer-during": _TOLD_APART,
}

LONGER = 20  # a partition has some 10,000 offsets then
SPREAD = 7  # partitions of the target
BY_KEY = {"partitioning": "by_key", "target_topics": {"partitions": SPREAD}}
OF_ONE_PARTITION = {
    **dict.fromkeys(
        ("target-commit-partial-dropped", "target-end-lost", *LOST_DURING),
        "what is lost of a chunk in one partition is left to a person, because the others still show the rest",
    ),
    "target-partition-offline": "any record may go to the sick partition, so no other one goes on",
    **dict.fromkeys(
        ("target-ledger-commit-partial", "target-ledger-commit-partial-dropped"),
        "the row cannot tell whose chunk was committed in part",
    ),
    "source-partitions-added": "the target does not follow",
    "target-partitions-added": "it is refused, because keys would move",
    "target-data-deleted": "a target partition has records of all source partitions, not of one",
    "target-foreign-writer-during": "only an audit finds a record between ours",
}

PROFILES = {
    "": Profile(),
    # Several batches in a chunk of some 40 records, and several chunks in a range.
    "batch": Profile(
        leaves_out={
            **dict.fromkeys(LOST_DURING, _ALL_ENGINES),
            "target-retention-of-old-records": "its one batch is one chunk, so no run dies between two",
        },
        copy={"engine": "batch"},
        load={"batch.num.messages": 10},
    ),
    # Long enough for the batch engine; what a run leaves half done may be short, and is then copied by the record engine.
    "auto": Profile(
        leaves_out={
            "target-retention-of-old-records": "its one batch is one chunk, so no run dies between two",
            **dict.fromkeys(LOST_DURING, _ALL_ENGINES),
            "target-compaction-of-old-records": "the batch engine does not copy to compacted topics",
            **dict.fromkeys(
                ("source-partition-offline", "target-partition-offline"), "its 21 partitions are short: `batch` has it"
            ),
        },
        copy={"engine": choices.AUTO},
        load={"batch.num.messages": 10 * LONGER},
        longer=LONGER,
        engine=choices.BATCH,
    ),
    "by_key": Profile(BY_KEY, leaves_out=OF_ONE_PARTITION),
    "quarantine": Profile(
        {"transform": "tests.faults.profiles:failing", "failures": {"policy": "quarantine"}},
        aside=_fails,
        leaves_out=dict.fromkeys(
            (row for row in HALF_DONE if row != "target-abort-partial" and "ledger" not in row),
            "the quarantine topic has what is copied again twice",
        ),
    ),
    "at_least_once": Profile({"delivery": "at_least_once"}, leaves_out=WITHOUT_TRANSACTIONS),
    "leader_ack": Profile({"delivery": "leader_ack", "accept_loss": 1.0}, leaves_out=WITHOUT_TRANSACTIONS),
    "fire_and_forget": Profile(
        {"delivery": "fire_and_forget", "accept_loss": 1.0},
        leaves_out={
            **WITHOUT_TRANSACTIONS,
            "target-compacted": _UNHEARD,
            "target-200-ms-away-refuses": _UNHEARD,
            "target-produce-quota": "nobody hears of a quota",
        },
    ),
    "latest": Profile(
        target={"shape": "latest"},
        newest=True,
        leaves_out=dict.fromkeys(
            ("opensearch-mapping-conflict", "opensearch-mapping-conflict-set-aside"),
            "it has a target and keys of its own",
        ),
    ),
    "transform": Profile(
        {"filter": "!(key && ends_with(key, '7'))", "transform": "tests.faults.profiles:split"}, _split
    ),
}


def name() -> str:
    """The profile of this session. Raises SystemExit for one that does not exist."""
    chosen = os.environ.get(VARIABLE, "")
    if chosen not in PROFILES:
        raise SystemExit(f"{VARIABLE}={chosen}: no such profile; there are {', '.join(filter(None, PROFILES))}")
    return chosen


def current() -> Profile:
    return PROFILES[name()]
