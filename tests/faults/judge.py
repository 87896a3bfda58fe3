"""The verdict on what a trial left on the target: every record of the source, where the profile says it has to be."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace

from kafka_replication.model.choices import LOSSY
from tests.faults import profiles
from tests.faults.bench import Bench
from tests.faults.load import Load
from tests.faults.sampler import LEDGER
from tests.support.checker import Comparison, Record, compare, read

PREFIX = "kafka-replication.failed."
Log = list[tuple[int, Record]]


class Judge:
    """``stored`` are the watermarks by partition. Where the copy cannot be ``complete``, whatever is below must be
    there. ``spread``: records of a source partition may lie in any target partition.
    """

    def __init__(self, bench: Bench, load: Load, stored: dict[int, int], *, complete: bool, spread: bool) -> None:
        self._bench, self._load, self._stored, self._complete, self._spread = bench, load, stored, complete, spread

    def judge(self, topic: str, quarantine: str) -> dict[int, Comparison]:
        """Compare every source partition with these topics of the target."""
        sets_aside, found = profiles.current().aside is not None, {}
        for partition, logs in self._copied(topic).items():
            found[partition] = self._compare(partition, self._load.wanted[partition], logs)
            if sets_aside:
                aside = self._compare(partition, self._load.aside[partition], self._quarantined(quarantine, partition))
                found[partition] = _sum(found[partition], aside)
        return found

    def _compare(self, partition: int, records: Log, logs: Sequence[Sequence[Record]]) -> Comparison:
        below = self._stored.get(partition, 0)
        wanted = [record for offset, record in records if self._complete or offset < below]
        all_, copied = [record for _, record in records], [record for log in logs for record in log]
        rest = compare(all_, copied)
        reordered = [record for log in logs for record in compare(all_, log).reordered]
        return replace(rest, lost=compare(wanted, copied).lost, reordered=reordered)

    def _copied(self, topic: str) -> dict[int, list[list[Record]]]:
        """For each source partition its records on the target, by target partition. If they are spread, a record that
        no source partition has counts for the first one.
        """
        logs = self._logs(topic)
        if not self._spread:
            return {number: logs[number : number + 1] for number in self._load.records}
        owner = {record: number for number, records in self._load.wanted.items() for _, record in records}
        first = min(self._load.records)
        return {
            number: [[record for record in log if owner.get(record, first) == number] for log in logs]
            for number in self._load.records
        }

    def _quarantined(self, topic: str, partition: int) -> list[list[Record]]:
        """What the quarantine topic has of a source partition, as it was at the source."""
        return [[_original(found) for found in log if _is_of(found, partition)] for log in self._logs(topic)]

    def _logs(self, topic: str) -> list[list[Record]]:
        return self._bench.copied_to.logs(topic)


def reported(bench: Bench, replication: str) -> defaultdict[int, Counter[str]]:
    """What the ledger says of each partition's verified copies: how many records are lost, and how many doubled."""
    target, found = bench.target.direct, defaultdict[int, Counter[str]](Counter)
    for number in range(target.partitions(LEDGER)):
        for _, record in read(target.bootstrap, LEDGER, number):
            with suppress(ValueError, TypeError):  # somebody else's record
                kind, name, _, partition, *_ = json.loads(record.key or b"")
                if (kind, name) == ("verified", replication) and record.value:
                    entry = json.loads(record.value)
                    found[partition] = Counter(
                        lost=entry.get("lost_in_delivery", 0), doubled=entry.get("duplicates", 0)
                    )
    return found


def misreported(
    partition: int, comparison: Comparison, told: Counter[str], *, whole: bool, ignore: Sequence[str]
) -> list[str]:
    """A profile may lose or double only what it promises, and has to report exactly that, once the ``whole`` partition is
    verified. Until then nothing may be lost that is not reported; duplicates are not counted yet.
    """
    there = Counter(lost=len(comparison.lost), doubled=len(comparison.doubled))
    if "lost" in ignore:
        return []
    problems = []
    if there["lost"] and profiles.current().delivery not in LOSSY:
        problems.append(f"partition {partition}: {there['lost']} records are lost")
    if there != told if whole else there["lost"] > told["lost"]:
        problems.append(f"partition {partition}: {dict(there)} are there, and {dict(told)} was reported")
    return problems


def without_the_engine(chunks: Mapping[str, int]) -> list[str]:
    """The engine that a profile is there for has to have copied. ``chunks`` are counted by what receipts name: engine and
    version.
    """
    wanted = profiles.current().engine
    if not wanted or wanted in {name.partition("/")[0] for name in chunks}:
        return []
    return [f"the {wanted} engine was to copy, and these did: {dict(chunks)}"]


def _sum(one: Comparison, other: Comparison) -> Comparison:
    return Comparison(**{each.name: getattr(one, each.name) + getattr(other, each.name) for each in fields(Comparison)})


def _is_of(found: Record, partition: int) -> bool:
    return (f"{PREFIX}partition", b"%d" % partition) in found.headers


def _original(found: Record) -> Record:
    """A quarantined record without what was added to it."""
    headers = tuple(header for header in found.headers if not header[0].startswith(PREFIX))
    timestamp = next(value for name, value in found.headers if name == f"{PREFIX}timestamp")
    return replace(found, headers=headers, timestamp=int(timestamp or b""))
