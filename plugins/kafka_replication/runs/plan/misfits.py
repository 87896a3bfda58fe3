"""Finds out before a run which records of a sample the target would refuse for their content."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator
from contextlib import closing, suppress

from kafka_replication.copying.steps import Origin
from kafka_replication.kafka.read.cursor import Cursor
from kafka_replication.model.errors import ReplicationError
from kafka_replication.model.failures import Failure
from kafka_replication.model.keys import consumer_group
from kafka_replication.model.offsets import OffsetRange
from kafka_replication.planning.findings import Finding
from kafka_replication.planning.plan import PartitionPlan, Plan
from kafka_replication.runs.run import Run
from kafka_replication.sinks.port import Record, RefusedAt

log = logging.getLogger(__name__)
PARTITIONS, RECORDS = 20, 20  # that are looked at; of each partition so many of the first and of the last records
Judge = Callable[[Record], Failure | None]


def misfits(run: Run, planned: Plan) -> list[Finding]:
    """A finding for each partition of which a record of the sample would be refused. It is an error if that stops the
    partition. A source that cannot be read is said elsewhere.
    """
    to_copy = [one for one in planned.partitions if one.copy is not None][:PARTITIONS]
    judges = {topic: _judge(run, topic) for topic in {one.key.target_topic for one in to_copy}}
    found = ((one, judge) for one in to_copy if (judge := judges[one.key.target_topic]) is not None)
    return [finding for one, judge in found if (finding := _finding(run, one, judge))]


def _judge(run: Run, topic: str) -> Judge | None:
    try:
        return run.clusters.target.standing.judge(topic)
    except ReplicationError as error:
        log.debug("%s on the target tells nothing of the records that it takes: %s", topic, error)
        return None


def _finding(run: Run, planned: PartitionPlan, judge: Judge) -> Finding | None:
    key = planned.key
    try:
        found = {record[0]: judge(record) for record in _sample(run, planned)}  # first and last records may overlap
    except (ReplicationError, SystemError) as error:  # the latter for a record that the client cannot decode
        log.debug("%s: no sample was compared with the target: %s", key.source, error)
        return None
    if not (failures := [failure for failure in found.values() if failure]):
        return None
    first, policy = failures[0], run.replication.failures.of(failures[0].kind)
    remedy = "correct the target, or the records by a transform"
    return Finding(
        "error" if policy == "fail" else "warning",
        f"{key.source} -> {key.target_topic}",
        f"the record at offset {first.offset} would be refused: {first.reason}"
        + (f"; so would {len(failures) - 1} more of the sample" if failures[1:] else ""),
        f"{remedy}, or let failures.refused set them aside" if policy == "fail" else remedy,
        topic=key.source.topic,
        partition=key.source.partition,
    )


def _sample(run: Run, planned: PartitionPlan) -> Iterator[Record]:
    """The records to write of the first and the last source records of the range."""
    assert planned.copy is not None
    key, wanted, pipeline = planned.key, planned.copy, run.pipeline
    group, stall = consumer_group(key.replication), run.replication.copying.stall_timeout
    last = OffsetRange(max(wanted.from_, wanted.until - RECORDS), wanted.until)
    origin = Origin(planned.ids.source_cluster, key.source.topic, key.source.partition)
    with closing(Cursor(run.clusters.source, group, key.source, stall)) as source:
        for record in itertools.chain(itertools.islice(source.content(wanted), RECORDS), source.content(last)):
            with suppress(RefusedAt):  # the run says so, and sets it aside if it may
                yield from pipeline.outputs(record, origin) if pipeline else (record,)
