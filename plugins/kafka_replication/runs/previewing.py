"""Previews of a run: what it would do, and what it would refuse. Changes nothing.

Adds to a plan the engine that begins with each range, and the reason.

Finds out if a target that is to be written behind (`on_existing_target: append`) has the records already.

Asks the source for what `planning.foresight` judges: which waiting records retention will drop soon, and
how old they are. Where nothing waits, or no topic has a retention, nothing is asked.

Findings about one cluster while the other one does not answer. Changes nothing.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace

from kafka_replication.kafka import offsets, partitioner, snapshotter
from kafka_replication.kafka.brokers import unsupported
from kafka_replication.kafka.cursor import Cursor
from kafka_replication.kafka.sampling import first_times
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model import combinations
from kafka_replication.model.choices import chosen
from kafka_replication.model.errors import NotAuthorized, ReplicationError
from kafka_replication.model.offsets import OffsetRange, PartitionKey, TopicPartition, consumer_group
from kafka_replication.model.rights import Side
from kafka_replication.model.trouble import Trouble, in_order
from kafka_replication.planning import foresight, preflight, rights
from kafka_replication.planning.foresight import SourceLoss, TargetLoss, Waiting
from kafka_replication.planning.live import own, plan, refuse_occupied, without_source
from kafka_replication.planning.plan import PartitionPlan, Plan, State, changes
from kafka_replication.planning.snapshot import Snapshot
from kafka_replication.planning.topic_settings import created_config
from kafka_replication.runs.looking import Live, Planned, World, ask, asked, defended, look
from kafka_replication.runs.run import Request, Run
from kafka_replication.targets.start_offsets import TargetRecords

log = logging.getLogger(__name__)


def with_engines(run: Run, planned: Plan, snapshot: Snapshot) -> Plan:
    """The plan with the engine of each range. Asks no cluster: a worker asks again, and knows what has changed."""
    if not planned.to_copy:
        return planned
    general = combinations.why_not_batches(run.replication.chosen) or unsupported(run.clusters.source)
    sink, reasons = run.clusters.target.sink, dict[str, str | None]()  # by target topic
    partitions = list[PartitionPlan]()
    for one in planned.partitions:
        name = one.key.target_topic
        if one.copy is not None:
            if name not in reasons and not general:
                topic, source = snapshot.target.get(name), snapshot.source.get(one.key.source.topic)
                settings = run.replication.target_topics.of(one.key.source.topic)
                made = created_config(source.config if source else {}, settings)
                reasons[name] = sink.why_not_batches(name, topic.config if topic else made)
            engine, why = chosen(run.replication.copying.engine, one.copy.span, general or reasons[name])
            one = replace(one, engine=engine, engine_why=why)
        partitions.append(one)
    return replace(planned, partitions=tuple(partitions))


PARTITIONS = 100  # of which the ends are compared; a lost ledger is lost for all of them
LAST, AROUND = 20, 1_000  # offsets at the target's end, some of which are markers; source records of about that time


def _already_there(run: Run, planned: Plan) -> list[Trouble]:
    """A warning for each new partition whose target ends with a record that its source has, and that is to be copied:
    the ledger is perhaps lost, and all of it would be there twice. Where it cannot be found out, nothing is said.
    """
    if run.replication.on_existing_target != "append" or not run.replication.placing.keeps:
        return []
    new = (one for one in planned.partitions if one.state is State.OPENING and one.copy)
    return list(filter(None, (_finding(run, one) for one in itertools.islice(new, PARTITIONS))))


def _finding(run: Run, planned: PartitionPlan) -> Trouble | None:
    key = planned.key
    try:
        pair = _same_record(run, planned)
    except (ReplicationError, SystemError) as error:  # the latter for a record that the client cannot decode
        log.debug("%s: the end of %s was not compared with the source: %s", key.source, key.target, error)
        return None
    if pair is None:
        return None
    last, source_offset = pair
    return Trouble(
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


READING = 10.0  # seconds for the timestamps of all partitions together

Offsets = Mapping[TopicPartition, int]


def foreseen(run: Run, planned: Planned, *, live: bool = True) -> list[Trouble]:
    """Warnings about records that are to be copied: the target has them already, the source will drop them before that,
    or the target soon after.

    What cannot be found out is not said. A backfill is not ``live``: only its copies are looked at.
    """
    there = _already_there(run, planned.opening or planned.plan)
    return [*there, *_dropped(run, planned.plan, planned.world, live=live)]


def _dropped(run: Run, plan: Plan, world: World, *, live: bool) -> list[Trouble]:
    try:
        found, now = foresight.waiting(run.replication, plan, world.snapshot, world.view), _now()
        young = _young_at_source(run, found, now)
        source = _source_losses(run, found, young, now) if live else []
        return list(foresight.findings(source, _target_losses(run, found, young, now)))
    except ReplicationError as error:
        log.debug("%s: what retention will drop was not found out: %s", run.replication.name, error)
        return []


def source_losses(run: Run, found: Sequence[Waiting]) -> Mapping[PartitionKey, SourceLoss]:
    """The partitions of which the source will soon drop records that are not copied. Raises Unreachable."""
    now = _now()
    return {loss.key: loss for loss in _source_losses(run, found, _young_at_source(run, found, now), now)}


def _now() -> int:
    return int(time.time() * 1000)


def _young_at_source(run: Run, found: Iterable[Waiting], now: int) -> Offsets:
    return _young(run, {one.key.source: one.source_limit(now) for one in found})


def _young(run: Run, limits: Mapping[TopicPartition, int | None]) -> Offsets:
    """For each partition that has a limit and answers the first offset with a timestamp from there on, or else its end.

    All partitions with one limit are one request.
    """
    found, asked = dict[TopicPartition, int](), dict[int, list[TopicPartition]]()
    for at, limit in limits.items():
        if limit is not None:
            asked.setdefault(limit, []).append(at)
    patience = offsets.Patience.within(run.deadline.within(run.replication.timeouts.request))
    for limit, partitions in asked.items():
        answers, _ = offsets.at_time_each(run.clusters.source_admin, partitions, limit, patience)
        found |= answers
    return found


def times(run: Run, first: Offsets) -> Mapping[TopicPartition, int | None]:
    """The timestamp of the first record at or behind each of these source offsets, in ms; None if it is not known."""
    if not first:
        return {}
    seconds = run.deadline.within(READING)
    return first_times(run.clusters.source, consumer_group(run.replication.name), first, seconds)


def _source_losses(run: Run, found: Iterable[Waiting], young: Offsets, now: int) -> list[SourceLoss]:
    near = [one for one in found if one.left and young.get(one.key.source, 0) > one.first]
    oldest = times(run, {one.key.source: one.first for one in near})
    losses = (foresight.source_loss(one, oldest=oldest.get(one.key.source), now=now) for one in near)
    return [loss for loss in losses if loss is not None]


def _target_losses(run: Run, found: Iterable[Waiting], young_at_source: Offsets, now: int) -> list[TargetLoss]:
    to_copy = {one.key.source: one for one in found if one.to_copy}
    young = _young(run, {at: one.target_limit(now, young_at_source.get(at)) for at, one in to_copy.items()})
    old = {at: one for at, one in to_copy.items() if young.get(at, 0) > one.first_to_copy}
    oldest = times(run, {at: one.first_to_copy for at, one in old.items()})
    losses = (foresight.target_loss(one, oldest=oldest.get(at), young=young[at]) for at, one in old.items())
    return [loss for loss in losses if loss is not None]


# The findings about a topic say the same.
_SAID_BY_FINDINGS = frozenset({State.UNFIT, State.UNREADABLE, State.TARGET_MISSING})


def preview(run: Run, request: Request) -> tuple[Plan, list[Trouble]]:
    """The plan of a run now, and the findings about both clusters. Creates, opens and stores nothing.

    The target is asked for a producer id under an id of its own, so no run at work is fenced. Raises NotAuthorized if
    the ledger may not be read; `missing_rights` then tells all.
    """
    check_functions(run)
    run.clusters.connect()
    demand = Live(request)
    world = asked(run, look(run, demand, opens=False), transactions=True)
    snapshot, view = world.snapshot, world.view
    planned = defended(run, demand.plan(run, world, {}))
    made = replace(planned.plan, changes=changes(planned.plan, view, run.transform))
    found = [*preflight.check(run.replication, snapshot), *foreseen(run, planned)]
    return without_occupied(run, with_engines(run, made, snapshot), snapshot, view), in_order(found)


def check_functions(run: Run) -> None:
    """Raise BadInput for a function of the file that cannot be imported here, before a cluster is asked."""
    run.check_pipeline()
    partitioner.check(run.replication.placing)


def refusals(planned: Plan) -> Iterator[Trouble]:
    """The partitions that a run would refuse, for reasons that only the ledger or the records show."""
    for refused in planned.refused:
        if refused.state not in _SAID_BY_FINDINGS:
            at = refused.key.source
            yield Trouble("error", str(at), refused.what, refused.remedy, topic=at.topic, partition=at.partition)


def missing_rights(run: Run) -> list[Trouble]:
    """Every right that is missing, as far as the brokers tell, also if the ledger may not be read."""
    snapshot = run.snapshot(LedgerView())
    snapshot = ask(run, snapshot, transactions=True).added_to(snapshot)
    for_topics = (rights.missing_for_topic(run.replication, snapshot, name) for name in snapshot.source)
    return [*(right for found in for_topics for right in found), *rights.missing_for_all(run.replication, snapshot)]


def with_missing_rights(run: Run, error: NotAuthorized) -> NotAuthorized:
    """The error with all rights that are missing now. A broker names only the first one, and not what needs it."""
    try:
        found = list(dict.fromkeys((f"{right.where}: {right.what}", right.remedy) for right in missing_rights(run)))
    except ReplicationError:
        return error
    if not found:
        return error
    return NotAuthorized("; ".join(what for what, _ in found), "; ".join(remedy for _, remedy in found))


def without_occupied(run: Run, planned: Plan, snapshot: Snapshot, view: LedgerView) -> Plan:
    """The plan in which new partitions are refused whose target has records of others. Creates and opens nothing."""
    if run.replication.on_existing_target != "refuse":
        return planned
    placing = run.replication.placing
    new = dict[PartitionKey, PartitionPlan]()
    for one in planned.partitions:
        if one.state is State.OPENING and (target := snapshot.target.get(one.key.target_topic)):
            numbers = placing.targets(one.key.source.partition, target.partitions)
            logs = (target.readable.get(number) for number in numbers)
            if any(log is not None and log.log_start < log.high_watermark for log in logs):
                new[one.key] = one
    if not new:
        return planned
    records = TargetRecords(run.clusters.target, placing)
    wait = run.deadline.within(run.replication.timeouts.request)
    occupied, unknown = records.occupied_each(new, wait, view.positions)
    refused = refuse_occupied(new.values(), occupied, unknown)
    return replace(planned, partitions=tuple(refused.get(one.key, one) for one in planned.partitions))


def one_side_findings(run: Run, away: Mapping[Side, ReplicationError]) -> list[Trouble]:
    """Each side that is ``away`` as an error, and the findings about the other one, its ledger and the store.

    Nothing is said that needs both sides, such as what would be copied.
    """
    found = [Trouble.of(error, run.replication.name) for error in away.values()]
    try:
        if "source" not in away:
            found += _of_source(run)
        if "target" not in away:
            found += _of_target(run, Trouble.of(away["source"]))
    except ReplicationError as error:
        found.append(Trouble.of(error, run.replication.name))
    return in_order(found)


def _of_source(run: Run) -> list[Trouble]:
    known = {key.source for key in run.store.watermarks(run.replication.name)}
    snapshot = snapshotter.take_source(run.replication, run.clusters.source_admin, known)
    snapshot = replace(snapshot, logins=run.clusters.logins, known=bool(known))
    snapshot = ask(run, snapshot, transactions=False, sides=["source"]).added_to(snapshot)
    return preflight.check(run.replication, snapshot, preflight.ONE_SIDE["source"])


def _of_target(run: Run, problem: Trouble) -> list[Trouble]:
    """The ledger says which topics were copied; of the others only those are known that the file names."""
    try:
        view = run.view()
    except NotAuthorized:  # the rights on the ledger are among the findings
        view = LedgerView()
    replication, copied = run.replication, {key.target_topic for key in own(run.replication, view).positions}
    named = {name for name in replication.topics.named if replication.selects(name)}
    wanted = copied | {replication.target_name(name) for name in named if not replication.target_problem(name)}
    snapshot = run.clusters.target.catalogue.look(replication, wanted)
    snapshot = replace(snapshot, logins=run.clusters.logins)
    snapshot = ask(run, snapshot, transactions=True, sides=["target"]).added_to(snapshot)
    found = preflight.check(replication, snapshot, preflight.ONE_SIDE["target"])
    of_ledger = without_source(replication, view, problem)
    snapshot = replace(snapshot, source=of_ledger.source, source_cluster=of_ledger.source_cluster)
    planned = plan(replication, snapshot, view, run.watermarks(view))
    return [*found, *refusals(planned)]
