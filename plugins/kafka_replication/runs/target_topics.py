"""Create the target topics that a run needs and the target lacks, and add partitions that were added at the source."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

import tenacity

from kafka_replication.config import Replication
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.errors import NotAdmitted, NotReady, Refused, Stalled, Unreachable
from kafka_replication.model.trouble import Trouble
from kafka_replication.planning import preflight, topic_settings
from kafka_replication.planning.followed_settings import Difference, differences
from kafka_replication.planning.live import own
from kafka_replication.planning.plan import Plan
from kafka_replication.planning.snapshot import Snapshot, Topic, without_description
from kafka_replication.planning.topic_settings import created_config
from kafka_replication.runs.run import LeasedRun, Request
from kafka_replication.targets.port import ToCreate

log = logging.getLogger(__name__)


def create_targets(run: LeasedRun, view: LedgerView, snapshot: Snapshot, request: Request) -> Snapshot:
    """Create the missing target topics of source topics that were never replicated, and let the others follow the
    number of partitions of their source.

    Returns ``snapshot`` if nothing is missing, else a new snapshot with what was created. A topic or partition that
    could not be created has a `Trouble` there. Raises Unreachable if the target does not answer, and NotAdmitted.
    """
    unfit = preflight.unfit(run.replication, snapshot)
    fit = {name: topic for name, topic in snapshot.source.items() if name not in unfit}
    missing, short = _missing(run, view, snapshot, fit), _short(run, view, snapshot, fit)
    if not (missing or short):
        return snapshot
    problems = dict[str, Trouble]()  # by target topic
    for name, target in (missing | short).items():
        try:
            if name in missing:
                create_target(run, snapshot, name, target)
            else:
                run.check()
                partitions = len(fit[name].partitions)
                log.info("%s on the target gets as many partitions as its source: %d", target, partitions)
                run.clusters.target.catalogue.add_partitions(target, partitions)
        except Stalled as error:  # a new partition has no leader yet: the snapshot shows which, and the others go on
            log.warning("%s", error)
        except NotAdmitted:
            raise
        except (Refused, NotReady) as error:
            log.error("%s", error)
            problems[target] = Trouble.of(error)
    wanted = {
        target: partitions_of(run.replication, fit[name])
        for name, target in (missing | short).items()
        if target not in problems
    }
    snapshot = _await_visible(run, view, request, wanted)
    not_created = {
        target: without_description(target, problems[target]) for target in problems.keys() & set(missing.values())
    }
    not_grown = dict[str, Topic]()
    for name, target in short.items():
        if target in problems and target in snapshot.target:
            there = snapshot.target[target].partitions
            new = {number: problems[target] for number in range(len(fit[name].partitions)) if number not in there}
            not_grown[target] = replace(snapshot.target[target], partitions={**there, **new})
    return replace(snapshot, target={**snapshot.target, **not_created, **not_grown})


def _missing(run: LeasedRun, view: LedgerView, snapshot: Snapshot, fit: Mapping[str, Topic]) -> dict[str, str]:
    """The target topics to create, by source topic."""
    opened = {key.source.topic for key in own(run.replication, view).positions}
    targets = {name: run.replication.target_name(name) for name in fit if name not in opened}
    missing = {name: target for name, target in targets.items() if target not in snapshot.target and run.holds(target)}
    return missing if run.replication.target_topics.create else {}


def _short(run: LeasedRun, view: LedgerView, snapshot: Snapshot, fit: Mapping[str, Topic]) -> dict[str, str]:
    """The target topics that have fewer partitions than their source, by source topic.

    A topic that was re-created since it was opened is refused, so its target stays as it is.
    """
    if not run.replication.adds_partitions:
        return {}
    recreated = {
        key.source.topic
        for key, position in own(run.replication, view).positions.items()
        if key.source.topic in fit
        and key.target_topic in snapshot.target
        and (position.ids.source_topic, position.ids.target_topic)
        != (fit[key.source.topic].topic_id, snapshot.target[key.target_topic].topic_id)
    }
    targets = {name: run.replication.target_name(name) for name in fit.keys() - recreated}
    return {
        name: target
        for name, target in sorted(targets.items())
        if target in snapshot.target
        and run.holds(target)
        and len(snapshot.target[target].partitions) < len(fit[name].partitions)
    }


def _await_visible(run: LeasedRun, view: LedgerView, request: Request, wanted: Mapping[str, int]) -> Snapshot:
    """A snapshot that shows the topics just created, with their number of partitions. Raises Unreachable.

    Brokers may see new topics late, and a partition cannot be opened without the id of its topic.
    """
    seconds = run.deadline.within(run.replication.timeouts.request)

    def hidden(snapshot: Snapshot) -> list[str]:
        there = {name: len(topic.partitions) for name, topic in snapshot.target.items()}
        return [target for target, partitions in wanted.items() if there.get(target, 0) < partitions]

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_result(lambda snapshot: bool(hidden(snapshot))),
        stop=tenacity.stop_after_delay(seconds),
        wait=tenacity.wait_fixed(0.1),
        retry_error_callback=lambda state: state.outcome.result() if state.outcome else None,
    )
    snapshot = retrying(run.snapshot, view, request)
    if left := hidden(snapshot):
        raise Unreachable(
            f"the new target topic {left[0]}, or its new partitions, are not known to every broker",
            "check the target's brokers; run again",
        )
    return snapshot


def follow_settings(run: LeasedRun, plan: Plan, snapshot: Snapshot) -> tuple[str, ...]:
    """Change the settings in which the target topics of this plan differ from their source, with `follow: apply`.

    Returns one text for each topic: what was changed, and why something was not. Nothing here fails a run.
    """
    if run.replication.target_topics.follow != "apply":
        return ()
    wanted, waiting = dict[str, dict[str, Difference]](), list[str]()
    for name, source in snapshot.source.items():
        target = snapshot.target.get(run.replication.target_name(name))
        planned = [partition for partition in plan.partitions if partition.key.source.topic == name]
        if target is None or not planned or not run.holds(target.name) or any(each.refused for each in planned):
            continue  # a topic that is refused may be somebody else's
        left = any(each.copy or each.position < each.source_end for each in planned)
        copies = left or any(log.is_hiding for log in source.readable.values())
        verifies = any(each.verify for each in planned)
        for difference in filter(lambda each: each.can_follow, differences(run.replication, source, target)):
            if difference.waits(to_copy=copies, to_verify=verifies):
                waiting.append(f"{target.name}: {difference}; a run changes it that finds nothing left to do there")
            else:
                wanted.setdefault(target.name, {})[difference.name] = difference
    run.check()
    refused = run.clusters.target.catalogue.change_settings(
        {target: {name: each.wanted for name, each in found.items()} for target, found in wanted.items()}
    )
    done = [
        f"{target}: set {name} from {each.now} to {each.wanted or 'the default'} (target_topics.follow)"
        for target, found in wanted.items()
        for name, each in found.items()
        if (target, name) not in refused
    ]
    failed = [f"{target}: {name} was not set: {error}" for (target, name), error in refused.items()]
    for text in (*done, *waiting):
        log.info("%s", text)
    for text in failed:
        log.warning("%s", text)
    return (*done, *failed, *waiting)


def create_target(run: LeasedRun, snapshot: Snapshot, name: str, target: str) -> None:
    """Create ``target`` for the source topic ``name``."""
    wanted = to_create(run.replication, snapshot.source[name], target)
    run.check()
    log.info("creating %s on the target with %d partitions", target, wanted.partitions)
    run.clusters.target.catalogue.create(wanted)


def to_create(replication: Replication, source: Topic, target: str) -> ToCreate:
    """The target topic for a source topic, as it is created."""
    settings = replication.target_topics.of(source.name)
    return ToCreate(
        name=target,
        partitions=partitions_of(replication, source),
        replication_factor=settings.replication_factor,
        config=created_config(source.config, settings),
    )


def create_quarantine(run: LeasedRun, snapshot: Snapshot) -> None:
    """Create the quarantine topic, if records can be quarantined and it is missing."""
    if topic_settings.may_quarantine(run.replication) and snapshot.quarantine is None:
        wanted = quarantine_to_create(run.replication, snapshot)
        run.check()
        log.info("creating the quarantine topic %s on the target", wanted.name)
        run.clusters.target.catalogue.create(wanted)


def quarantine_to_create(replication: Replication, snapshot: Snapshot) -> ToCreate:
    """The quarantine topic as it is created."""
    factor, config = topic_settings.quarantine_created(replication, snapshot.defaults)
    name = replication.quarantine_topic
    return ToCreate(
        name=name, partitions=topic_settings.QUARANTINE_PARTITIONS, replication_factor=factor, config=config
    )


def partitions_of(replication: Replication, source: Topic) -> int:
    """The number of partitions that the target topic of this source topic gets."""
    return replication.placing.stated or len(source.partitions)
