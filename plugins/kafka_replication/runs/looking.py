"""The first half of a plan step, which changes nothing: look at both clusters and the ledger, and ask for rights.

The demand of a run on both clusters: all in which live runs, intervals and backfills differ before they copy.

Ask the brokers what no snapshot shows: rights on groups and transactional ids, and what they would not create.

Compares positions with receipts before anything is copied from them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar, Literal, Protocol, TypeVar

from kafka_replication.config.names import PROVENANCE
from kafka_replication.kafka import dry_run_requests
from kafka_replication.ledger.entries import POSITIONS, RECEIPTS
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.choices import EXACTLY_ONCE, KAFKA
from kafka_replication.model.errors import NotAuthorized, ReplicationError
from kafka_replication.model.offsets import (
    LEDGER_PARTITIONS,
    Coverage,
    OffsetRange,
    PartitionKey,
    TopicPartition,
    consumer_group,
)
from kafka_replication.model.rights import DenyRule, Operation, Right, Side
from kafka_replication.model.trouble import Trouble, merged, raise_errors
from kafka_replication.planning import preflight, refusals, rights
from kafka_replication.planning.live import as_compared, own, plan
from kafka_replication.planning.plan import PartitionPlan, Plan, State
from kafka_replication.planning.snapshot import Snapshot
from kafka_replication.planning.topic_settings import ledger_created, may_quarantine
from kafka_replication.runs import schemas
from kafka_replication.runs.run import Request, Run
from kafka_replication.runs.target_topics import quarantine_to_create, to_create
from kafka_replication.targets.port import ToCreate

log = logging.getLogger(__name__)

# A denied right is reported at once. While a coordinator is away, its group is asked for again and again.
GROUP_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Answers:
    """The rights that are denied, and findings about everything else that the target would refuse."""

    denied: frozenset[Right] = frozenset()
    findings: Sequence[Trouble] = ()
    deny_rules: Mapping[Side, frozenset[DenyRule]] = field(default_factory=dict)

    def added_to(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with these answers."""
        rules = {**snapshot.deny_rules, **self.deny_rules}
        return replace(snapshot, denied=snapshot.denied | self.denied, deny_rules=rules, refused=self.findings)


def ask(run: Run, snapshot: Snapshot, *, transactions: bool, sides: Collection[Side] = ("source", "target")) -> Answers:
    """Ask these sides at the same time, which takes 10 ms. With ``transactions`` a producer id is asked for, too, which
    takes up to a second; a run that opens or copies something does so anyway.
    """
    questions = [partial(question, run, side) for side in sides for question in (_group, _rules)]
    if "target" in sides:
        questions.append(partial(_creation, run, snapshot))
    if "target" in sides and transactions and run.replication.delivery == EXACTLY_ONCE:
        questions.append(partial(_transactions, run))
    with ThreadPoolExecutor(len(questions)) as pool:
        answers = [future.result() for future in [pool.submit(question) for question in questions]]
    return Answers(
        frozenset(right for answer in answers for right in answer.denied),
        [finding for answer in answers for finding in answer.findings],
        {side: rules for answer in answers for side, rules in answer.deny_rules.items()},
    )


def _group(run: Run, side: Side) -> Answers:
    right = rights.on_group(side, run.replication.name)
    seconds, name = _seconds(run), run.replication.name
    allowed = (
        dry_run_requests.may_describe_group(run.clusters.source, consumer_group(name), seconds)
        if side == "source"
        else run.clusters.target.catalogue.may_read(seconds)
    )
    return Answers() if allowed else Answers(frozenset({right}))


def _rules(run: Run, side: Side) -> Answers:
    seconds = _seconds(run)
    rules = (
        dry_run_requests.deny_rules(run.clusters.source_admin, side, seconds)
        if side == "source"
        else run.clusters.target.catalogue.deny_rules(seconds)
    )
    return Answers() if rules is None else Answers(deny_rules={side: rules})


def _seconds(run: Run) -> float:
    return run.deadline.within(min(GROUP_SECONDS, run.replication.timeouts.request))


def _transactions(run: Run) -> Answers:
    try:
        run.clusters.target.catalogue.check_writing()
    except NotAuthorized:
        return Answers(frozenset({rights.on_transactions(run.replication.name)}))
    except ReplicationError as error:
        return Answers(findings=[Trouble.of(error, str(run.clusters.logins["target"].cluster))])
    return Answers()


def _creation(run: Run, snapshot: Snapshot) -> Answers:
    """The answers about the topics that the run would create."""
    replication = run.replication
    wanted = dict[str, tuple[ToCreate, str | None]]()  # each with its source topic
    unfit = preflight.unfit(replication, snapshot)
    for name in sorted(snapshot.source.keys() - unfit.keys()) if replication.target_topics.create else ():
        if (target := replication.target_name(name)) not in snapshot.target:
            wanted[target] = to_create(replication, snapshot.source[name], target), name
    for name in {POSITIONS, RECEIPTS} - (snapshot.ledger or {}).keys():
        factor, config = ledger_created(name, replication, snapshot.defaults)
        topic = ToCreate(name=name, partitions=LEDGER_PARTITIONS, replication_factor=factor, config=config)
        wanted[name] = topic, None
    if may_quarantine(replication) and snapshot.quarantine is None:
        wanted[replication.quarantine_topic] = quarantine_to_create(replication, snapshot), None
    seconds = run.deadline.within(replication.timeouts.request)
    refused = run.clusters.target.catalogue.refusals((topic for topic, _ in wanted.values()), seconds)
    denied = frozenset[Right]()
    findings = list[Trouble]()
    for name, error in refused.items():
        source = wanted[name][1]
        if isinstance(error, NotAuthorized):
            denied |= {*rights.on_topic("target", name, [Operation.CREATE])}
        else:
            findings.append(Trouble.of(error, f"{source} -> {name}" if source else name, topic=source))
    return Answers(denied, findings)


Ranges = Mapping[TopicPartition, OffsetRange]
_REPORTED = (
    "find out what happened to the target; then set mend: repair in the file, which is the default, and run again"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Both clusters and the ledger, as a run knows them now. A step that changes something returns the world after it:
    the same snapshot and view are the same world, which is looked at and planned once.

    The snapshot has the rights that are denied by ``answers``. ``receipt_ends`` are older than ``view``: receipts that
    the view does not cover are at or above them. A preview has none.

    The others are what is said of a partition beside its plan: what was ``mended`` there, why something was ``left``,
    ``notes`` about what is about to be copied, and the plan of one that could not be opened (``refused``).
    """

    snapshot: Snapshot
    view: LedgerView
    receipt_ends: Mapping[int, int]
    answers: Answers = field(default_factory=Answers)
    mended: Mapping[PartitionKey, str] = field(default_factory=dict)
    left: Mapping[PartitionKey, str] = field(default_factory=dict)
    notes: Mapping[TopicPartition, str] = field(default_factory=dict)
    refused: Mapping[PartitionKey, PartitionPlan] = field(default_factory=dict)

    def is_as(self, before: World) -> bool:
        """True if clusters and ledger have not changed since."""
        return self.snapshot is before.snapshot and self.view is before.view

    def noted(self, planned: PartitionPlan, *, refusing: bool = False) -> PartitionPlan:
        """The plan of a partition with what happened to it here. ``refusing``: what is ``left`` is not worked on."""
        key = planned.key
        noted = self.refused.get(key, planned).saying(self.mended.get(key, ""), self.left.get(key, ""))
        if refusing and key in self.left:
            state = noted.state if noted.refused else State.TARGET_TRUNCATED
            noted = replace(noted, state=state, copy=None, verify=Coverage(), remedy=_REPORTED)
        return replace(noted, what=noted.what or self.notes.get(key.source, ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """The plan of a demand in a world. ``opening`` is the plan by which partitions are opened, if that is another one;
    ``text`` shows the plan in the log, if it is more than the plan's own table.
    """

    plan: Plan
    world: World
    ranges: Ranges = field(default_factory=dict)
    opening: Plan | None = None
    text: Callable[[], str] | None = None


class Demand(Protocol):
    """One kind of run.

    ``opens_live``: new partitions start where live copying starts, not where their range does. ``whole``: all of the
    demanded topics or nothing, so one refused partition refuses the run.
    """

    @property
    def kind(self) -> Literal["live", "interval", "backfill"]: ...

    @property
    def opens_live(self) -> bool: ...

    @property
    def whole(self) -> bool: ...

    @property
    def request(self) -> Request:
        """The request that names the topics to look at."""

    def ranges(self, run: Run, world: World) -> Ranges:
        """The offsets that are demanded, resolved once; none for live copying, which goes on from its positions."""

    def plan(self, run: Run, world: World, ranges: Ranges) -> Planned:
        """The plan of these ranges in this world."""


@dataclass(frozen=True, slots=True)
class Live:
    """Live copying: every partition goes on from its position. One that is refused holds back no other."""

    request: Request
    kind: ClassVar[Literal["live"]] = "live"
    opens_live: ClassVar[bool] = True
    whole: ClassVar[bool] = False

    def ranges(self, run: Run, world: World) -> Ranges:  # noqa: ARG002 - see `Demand`
        return {}

    def plan(self, run: Run, world: World, ranges: Ranges) -> Planned:  # noqa: ARG002
        made = plan(run.replication, world.snapshot, world.view, run.watermarks(world.view))
        return Planned(plan=made, world=world)


NOT_ASKED = Answers()


def look(run: Run, demand: Demand, answers: Answers = NOT_ASKED, *, opens: bool = True) -> World:
    """The ledger and a snapshot of the demanded topics, with the ``answers`` that were given before.

    ``opens``: for a run, which opens new partitions and stores its plan; see `to_look_at`. A preview does neither.
    """
    ends = run.clusters.ledger.receipt_ends() if opens else {}
    view = run.view()
    snapshot = run.snapshot(view, to_look_at(run, view, demand) if opens else demand.request)
    return World(snapshot=answers.added_to(snapshot), view=view, receipt_ends=ends, answers=answers)


def to_look_at(run: Run, view: LedgerView, demand: Demand) -> Request:
    """The topics that a run has to see which opens new partitions.

    The first run has all topics, because it resolves the start offsets of all partitions: a topic left out would count
    as added later.
    """
    widens = demand.opens_live and not own(run.replication, view).begun
    return replace(demand.request, topics=()) if widens else demand.request


def asked(run: Run, world: World, *, transactions: bool) -> World:
    """The world with the rights that are denied, see `ask`, and with what ids of schemas say against copying."""
    answers = ask(run, world.snapshot, transactions=transactions)
    answers = replace(answers, findings=[*answers.findings, *schemas.other_ids(run, world.snapshot, world.view)])
    return replace(world, snapshot=answers.added_to(world.snapshot), answers=answers)


def raise_findings(run: Run, demand: Demand, world: World) -> None:
    """Log every finding. Raises PreflightFailed if one of them stops the run, or if the run does all of the demanded
    topics or nothing, and one of them has an error. What concerns one partition is raised when it is planned.
    """
    found = preflight.check(run.replication, world.snapshot)
    log_findings(found)

    def stops(finding: Trouble) -> bool:
        demanded = not demand.request.topics or finding.topic in demand.request.topics
        return finding.stops_the_run or (demand.whole and demanded and finding.partition is None)

    raise_errors(filter(stops, found))


def log_findings(findings: Iterable[Trouble]) -> None:
    for finding in merged(findings):
        finding.log_to(log)


P = TypeVar("P", bound=Planned)


def _not_circular(run: Run, planned: Planned) -> Plan:
    """The plan without new partitions that another replication fills from the target: these are refused, unless records
    that came from there are left out.
    """
    file, run_plan, target = run.replication, planned.plan, planned.world.snapshot.target_cluster
    new = {one.key: one for one in run_plan.partitions if one.state is State.OPENING}
    if not new or file.target.type != KAFKA or (PROVENANCE in file.transform and target in file.topics.exclude_from):
        return run_plan
    try:
        there = run.clusters.positions_on_source()
    except ReplicationError as error:
        log.debug("%s: the ledger on the source was not looked at: %s", file.name, error)
        return run_plan
    fills = {(key.target, key.source): key for key, at in there.items() if at.ids.source_cluster == target}
    refused = {
        one.key: one.refusing(refusals.circular(one.key, fills[ends].replication))
        for one in new.values()
        if (ends := (one.key.source, one.key.target)) in fills
    }
    return replace(run_plan, partitions=tuple(refused.get(one.key, one) for one in run_plan.partitions))


def defended(run: Run, planned: P) -> P:
    """The plan without partitions whose receipts contradict their position; these are refused.

    Reads receipts only of partitions that are to be copied, from where unverified ones can begin, so that the cost does
    not grow with history. If the store does not know such a partition, it was lost or replaced, and all receipts of the
    partition's generation are read.
    """
    run_plan, view = _not_circular(run, planned), as_compared(planned.world.view, planned.world.snapshot)
    planned = replace(planned, plan=run_plan)
    in_store = run.watermarks(view)
    wanted = {
        partition.key: view[partition.key].receipts_from() if partition.key in in_store else position.receipts_from
        for partition in run_plan.to_copy
        if (position := view.position(partition.key, partition.generation)) is not None
    }
    if not wanted:
        return planned
    receipts = run.clusters.ledger.receipts(wanted)
    found = {key: texts for key in wanted if (texts := view[key].contradictions_in(receipts))}
    if found:  # unless a run is at work, and has committed more since the view was read
        now = run.view().positions
        found = {key: texts for key, texts in found.items() if now.get(key) == view.positions[key]}
    refused = {key: refusals.contradicted(key, texts) for key, texts in found.items()}
    partitions = (p.refusing(refused[p.key]) if p.key in refused else p for p in run_plan.partitions)
    return replace(planned, plan=replace(run_plan, partitions=tuple(partitions)))
