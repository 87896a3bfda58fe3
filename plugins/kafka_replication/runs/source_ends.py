"""The source of a direction: what it has and is not verified on the target, whether it is still written to, and how
writing is given back to its producers.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from kafka_replication.documents import place
from kafka_replication.kafka import acls, offsets, sampling, snapshotter, topics
from kafka_replication.ledger.entries import Entry, Position
from kafka_replication.model.errors import Unreachable
from kafka_replication.model.offsets import PartitionKey, TopicPartition
from kafka_replication.model.times import from_millis, to_text
from kafka_replication.planning.snapshot import PartitionOffsets
from kafka_replication.planning.turning import surplus_of
from kafka_replication.reporting.turning import TurnRow
from kafka_replication.runs import sealing
from kafka_replication.runs.run import LeasedRun, Run

LOOK: Final = 0.5  # seconds between two looks at the ends of the source


def rows_of(run: Run) -> list[TurnRow]:
    """Also of those that are new, and that the next run opens."""
    positions, keys, behind = sealing.selected(run).positions, _keys(run), lags(run)
    times = sampling.last_writes(run.clusters.source_admin, keys)
    return [
        TurnRow(
            **place(key),
            lag=behind.get(key, 0),
            last_write=to_text(from_millis(times[key.source])) if key.source in times else None,
            seal=positions[key].sealed if key in positions else None,
        )
        for key in sorted({*keys.values(), *positions})
    ]


def lags(run: Run) -> dict[PartitionKey, int]:
    """The number of source offsets, up to the high watermark, that are not verified, of each partition that has some.
    Raises Unreachable.
    """
    view, keys = sealing.selected(run), _keys(run)
    logs = offsets.all_three(run.clusters.source_admin, keys)
    lags = dict[PartitionKey, int]()
    for at, key in keys.items():
        if not isinstance(log := logs[at], PartitionOffsets):
            raise Unreachable(log.what, log.remedy)
        if key not in view.positions:  # it is new, and the next run opens it
            lags[key] = log.high_watermark - log.log_start
            continue
        hidden = log.high_watermark - log.last_stable
        lags[key] = surplus_of(view[key], log.last_stable).span + view[key].pending().span + hidden
    return {key: lag for key, lag in lags.items() if lag}


def unopened(run: Run) -> bool:
    """True if a partition of the source is selected that no run has opened."""
    return bool(set(_keys(run).values()) - sealing.selected(run).positions.keys())


def _keys(run: Run) -> dict[TopicPartition, PartitionKey]:
    """The partitions of the source that are selected, and those that were."""
    file, admin = run.replication, run.clusters.source_admin
    there = topics.states(admin, [name for name in snapshotter.candidates(file, admin) if file.selects(name)])
    view = sealing.selected(run)  # but for topics of which it is known that they were deleted
    keys = {key.source: key for key in view.positions if key.source.topic in there or key not in view.deleted}
    for name, state in there.items():
        for at in (TopicPartition(name, number) for number in state.partitions):
            keys.setdefault(at, PartitionKey(file.name, at, file.target_name(name)))
    return keys


def still_written(run: Run, seconds: float) -> set[PartitionKey]:
    """The partitions whose end at the source moves within so many seconds; returns as soon as one does."""
    keys = _keys(run)
    before = offsets.high_watermarks(run.clusters.source_admin, keys)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(min(LOOK, seconds))
        run.deadline.check(f"{run.replication.name}: waiting for the end of writes")
        after = offsets.high_watermarks(run.clusters.source_admin, keys)
        if moved := {keys[at] for at, end in after.items() if end != before[at]}:
            return moved
    return set()


def give_back(run: LeasedRun) -> int:
    """Remove the rules by which producers were denied to write to the source. The number of topics."""
    view = sealing.view_of(run)
    noted = {key: position for key, position in view.positions.items() if position.denied}
    topics = {key.source.topic for key in noted}
    if topics:
        there = acls.denied(run.clusters.source_admin, topics)
        acls.write(run.clusters.source_admin, (), [acls.denial(topic) for topic in there])

    def without(position: Position | None) -> Sequence[Entry]:
        return (replace(position, denied=""),) if position and position.denied else ()

    for key in noted:
        sealing.change(run, key, without)
    return len(topics)
