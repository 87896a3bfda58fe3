"""Finds out if a target that is to be written behind (`on_existing_target: append`) has the records already."""

from __future__ import annotations

import itertools
import logging
from collections import deque
from contextlib import closing

from kafka_replication.kafka.metadata import offsets
from kafka_replication.kafka.read.cursor import Cursor
from kafka_replication.model.errors import ReplicationError
from kafka_replication.model.keys import consumer_group
from kafka_replication.model.offsets import OffsetRange
from kafka_replication.planning.findings import Finding
from kafka_replication.planning.plan import PartitionPlan, Plan, State
from kafka_replication.runs.run import Run

log = logging.getLogger(__name__)
PARTITIONS = 100  # of which the ends are compared; a lost ledger is lost for all of them
LAST, AROUND = 20, 1_000  # offsets at the target's end, some of which are markers; source records of about that time


def already_there(run: Run, planned: Plan) -> list[Finding]:
    """A warning for each new partition whose target ends with a record that its source has, and that is to be copied:
    the ledger is perhaps lost, and all of it would be there twice. Where it cannot be found out, nothing is said.
    """
    if run.replication.on_existing_target != "append" or not run.replication.placing.keeps:
        return []
    new = (one for one in planned.partitions if one.state is State.OPENING and one.copy)
    return list(filter(None, (_finding(run, one) for one in itertools.islice(new, PARTITIONS))))


def _finding(run: Run, planned: PartitionPlan) -> Finding | None:
    key = planned.key
    try:
        pair = _same_record(run, planned)
    except (ReplicationError, SystemError) as error:  # the latter for a record that the client cannot decode
        log.debug("%s: the end of %s was not compared with the source: %s", key.source, key.target, error)
        return None
    if pair is None:
        return None
    last, source_offset = pair
    return Finding(
        "warning",
        f"{key.source} -> {key.target_topic}",
        f"the last record of {key.target} on the target, at offset {last}, is the one that the source has at offset"
        f" {source_offset}: what is copied from offset {planned.start} on is probably there already, and is there twice"
        " then",
        "if this replication copied it before, restore the ledger topics of the target instead; else copy to an empty"
        " topic, or begin behind it (start_from)",
        topic=key.source.topic,
        partition=key.source.partition,
    )


def _same_record(run: Run, planned: PartitionPlan) -> tuple[int, int] | None:
    """The offset of the target's last record, and that of the same record at the source, if it is to be copied."""
    key, clusters = planned.key, run.clusters
    there = clusters.target.standing.logs([key.target]).get(key.target)
    if there is None or not there.span:
        return None
    group, stall = consumer_group(key.replication), run.replication.copying.stall_timeout
    with clusters.target.standing.reader(key.target) as target:
        log_ = OffsetRange(max(there.from_, there.until - LAST), there.until)
        last = next(iter(deque(target.content(log_), maxlen=1)), None)
    if last is None:
        return None
    patience = offsets.Patience.within(run.replication.timeouts.request)
    of_that_time, _ = offsets.at_time_each(clusters.source_admin, [key.source], last[1], patience)
    first = max(of_that_time.get(key.source, planned.source_end), planned.start)
    with closing(Cursor(clusters.source, group, key.source, stall)) as source:
        around = OffsetRange(min(first, planned.source_end), min(first + AROUND, planned.source_end))
        same = (record[0] for record in source.content(around) if record[1:] == last[1:])
        found = next(same, None)
    return None if found is None else (last[0], found)
