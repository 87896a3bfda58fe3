"""Create the target topics that a run needs and the target lacks."""

from __future__ import annotations

import logging
from collections.abc import Collection

import tenacity

from kafka_replication.kafka import topics
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.errors import Unreachable
from kafka_replication.planning import preflight
from kafka_replication.planning.created_topics import created_config
from kafka_replication.planning.live import own
from kafka_replication.planning.snapshot import Snapshot
from kafka_replication.runs.run import LeasedRun, Request

log = logging.getLogger(__name__)


def create_targets(run: LeasedRun, view: LedgerView, snapshot: Snapshot, request: Request) -> Snapshot:
    """Create the missing target topics of source topics that were never replicated.

    Returns ``snapshot`` if no topic is missing, else a new snapshot with the created topics. Raises PreflightFailed if
    the brokers created a topic with other settings than requested; nothing is written to it then.
    """
    settings = run.replication.target_topics
    targets = {name: run.replication.target_topic(name) for name in snapshot.source}
    missing = [name for name, target in targets.items() if target not in snapshot.target and run.holds(target)]
    if not missing:
        return snapshot
    opened = {key.source.topic for key in own(run.replication, view).positions}
    created: list[str] = []
    for name in missing:
        if settings.create and name not in opened:
            created.append(run.replication.target_topic(name))
            create_target(run, snapshot, name, created[-1])
    snapshot = _await_visible(run, view, request, created)
    preflight.raise_errors(preflight.check(run.replication, snapshot, known=True))
    return snapshot


def _await_visible(run: LeasedRun, view: LedgerView, request: Request, created: Collection[str]) -> Snapshot:
    """A snapshot that shows the topics just created. Raises Unreachable.

    Brokers may see new topics late, and a partition cannot be opened without the id of its topic.
    """
    seconds = run.deadline.within(run.replication.timeouts.request)

    @tenacity.retry(
        retry=tenacity.retry_if_result(lambda snapshot: any(target not in snapshot.target for target in created)),
        stop=tenacity.stop_after_delay(seconds),
        wait=tenacity.wait_fixed(0.1),
        retry_error_callback=lambda state: state.outcome.result() if state.outcome else None,
    )
    def take_snapshot() -> Snapshot:
        return run.snapshot(view, request)

    snapshot = take_snapshot()
    hidden = [target for target in created if target not in snapshot.target]
    if hidden:
        raise Unreachable(
            f"the new target topic {hidden[0]} is not known to every broker", "check the target's brokers; run again"
        )
    return snapshot


def create_target(run: LeasedRun, snapshot: Snapshot, name: str, target: str) -> None:
    """Create ``target`` for the source topic ``name``, with the same number of partitions."""
    settings, partitions = run.replication.target_topics, len(snapshot.source[name].partitions)
    config = created_config(snapshot.source[name].config, settings)
    run.check()
    log.info("creating %s on the target with %d partitions", target, partitions)
    topics.create(run.clusters.target_admin, target, partitions, settings.replication_factor, config)
