"""Ask the brokers what no snapshot shows: rights on groups and transactional ids, and what they would not create."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial

from kafka_replication.kafka.preflight import dry_run_requests
from kafka_replication.ledger.entries import POSITIONS, RECEIPTS
from kafka_replication.model.delivery import EXACTLY_ONCE
from kafka_replication.model.errors import NotAuthorized, ReplicationError
from kafka_replication.model.keys import LEDGER_PARTITIONS, consumer_group
from kafka_replication.model.rights import DenyRule, Operation, Right, Side
from kafka_replication.planning.checks import preflight, rights
from kafka_replication.planning.findings import Finding
from kafka_replication.planning.snapshot import Snapshot
from kafka_replication.planning.topics import ledger_topics, quarantine_topic
from kafka_replication.runs.plan.target_topics import quarantine_to_create, to_create
from kafka_replication.runs.run import Run
from kafka_replication.targets.port import ToCreate

# A denied right is reported at once. While a coordinator is away, its group is asked for again and again.
GROUP_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Answers:
    """The rights that are denied, and findings about everything else that the target would refuse."""

    denied: frozenset[Right] = frozenset()
    findings: Sequence[Finding] = ()
    deny_rules: Mapping[Side, frozenset[DenyRule]] = field(default_factory=dict)

    def added_to(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with these rights."""
        rules = {**snapshot.deny_rules, **self.deny_rules}
        return replace(snapshot, denied=snapshot.denied | self.denied, deny_rules=rules)


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
        return Answers(
            findings=[Finding("error", str(run.clusters.logins["target"].cluster), error.what, error.remedy)]
        )
    return Answers()


def _creation(run: Run, snapshot: Snapshot) -> Answers:
    wanted = {**_targets(run, snapshot), **_ledger(run, snapshot), **_quarantine(run, snapshot)}
    seconds = run.deadline.within(run.replication.timeouts.request)
    refused = run.clusters.target.catalogue.refusals((topic for topic, _ in wanted.values()), seconds)
    denied = [name for name, error in refused.items() if isinstance(error, NotAuthorized)]
    return Answers(
        frozenset(right for name in denied for right in rights.on_topic("target", name, [Operation.CREATE])),
        list(_not_created(wanted, {name: error for name, error in refused.items() if name not in denied})),
    )


def _targets(run: Run, snapshot: Snapshot) -> dict[str, tuple[ToCreate, str | None]]:
    """The target topics to create, each with its source topic."""
    if not run.replication.target_topics.create:
        return {}
    unfit = preflight.unfit(run.replication, snapshot)
    targets = {run.replication.target_name(name): name for name in snapshot.source if name not in unfit}
    return {
        target: (to_create(run.replication, snapshot.source[name], target), name)
        for target, name in targets.items()
        if target not in snapshot.target
    }


def _ledger(run: Run, snapshot: Snapshot) -> dict[str, tuple[ToCreate, str | None]]:
    """The ledger topics to create."""
    wanted = dict[str, tuple[ToCreate, str | None]]()
    for name in {POSITIONS, RECEIPTS} - (snapshot.ledger or {}).keys():
        factor, config = ledger_topics.created(name, run.replication, snapshot.defaults)
        topic = ToCreate(name=name, partitions=LEDGER_PARTITIONS, replication_factor=factor, config=config)
        wanted[name] = topic, None
    return wanted


def _quarantine(run: Run, snapshot: Snapshot) -> dict[str, tuple[ToCreate, str | None]]:
    """The quarantine topic, if it is to be created."""
    if not quarantine_topic.is_wanted(run.replication) or snapshot.quarantine is not None:
        return {}
    return {run.replication.quarantine_topic: (quarantine_to_create(run.replication, snapshot), None)}


def _not_created(
    wanted: Mapping[str, tuple[ToCreate, str | None]], refused: Mapping[str, ReplicationError]
) -> Iterable[Finding]:
    for name, error in refused.items():
        source = wanted[name][1]
        where = f"{source} -> {name}" if source else name
        yield Finding("error", where, error.what, error.remedy, topic=source)
