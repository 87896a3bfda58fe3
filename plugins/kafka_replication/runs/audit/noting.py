"""Notes in the ledger what an audit has found missing in the middle of a target partition, so that a backfill copies it
again. Under a lease, and in what the target shows then.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from contextlib import closing
from dataclasses import replace

from kafka_replication.ledger.entries import Position, Receipt
from kafka_replication.ledger.receipts import Receipts
from kafka_replication.ledger.values import Proof
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.delivery import EXACTLY_ONCE
from kafka_replication.model.errors import ReplicationError
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import Coverage, OffsetRange
from kafka_replication.model.targets import TRANSACTIONAL
from kafka_replication.model.times import now
from kafka_replication.planning.snapshot import Topic
from kafka_replication.reporting.audit import PartitionAudit
from kafka_replication.runs.leasing import leased
from kafka_replication.runs.run import LeasedRun, Run
from kafka_replication.verification.matching import Kind
from kafka_replication.watermarks.topics import Scope, TargetTopics

log = logging.getLogger(__name__)


def note_missing(run: Run, results: Collection[PartitionAudit], target: Mapping[str, Topic]) -> None:
    """Note what these results say is missing, and in each result what was noted, or why nothing was.

    Only where target, file and receipts say `exactly_once`, and not in compacted topics: there an older value
    would come to lie behind a newer one of its key.
    """
    found = {one.key: one for one in results if one.lacking and _is_kept(target.get(one.key.target_topic))}
    proven = run.clusters.promise == TRANSACTIONAL and run.replication.delivery == EXACTLY_ONCE
    if not found or not proven or run.replication.placing.shared:
        return
    try:
        scope = Scope.exactly(TargetTopics.of({key.target_topic for key in found}))
        with leased(run, scope) as leased_run:
            noted = leased_run.again_if_fenced("noting what is missing", lambda: _note(leased_run, found))
    except ReplicationError as error:
        log.warning("what is missing on the target was not noted: %s", error)
        for result in found.values():
            result.note(f"what is missing was not noted for a backfill: {error.what}. Audit again")
        return
    for key, offsets in noted.items():
        found[key].note(f"{offsets} are noted as gone from the target: status has the command that copies them again")


def _is_kept(topic: Topic | None) -> bool:
    return topic is not None and "compact" not in topic.config.get("cleanup.policy", "")


def _note(run: LeasedRun, found: Mapping[PartitionKey, PartitionAudit]) -> dict[PartitionKey, Coverage]:
    """The offsets of each partition that are noted now."""
    with closing(run.opening()) as opening:
        view = opening.fence()
        run.check()
        receipts = run.clusters.ledger.receipts(dict.fromkeys(found))
        noted = {key: offsets for key, result in found.items() if (offsets := _missing(run, view, receipts, result))}
        new = [
            (key, replace(entry, middle=entry.middle.union(offsets), run_id=run.run_id, time=now()))
            for key, offsets in noted.items()
            if offsets.subtract((entry := view[key].removed).middle)
        ]
        opening.commit({}, {}, new)
    for key, entry in new:
        log.info("%s: no longer on the target, found by an audit: %s", key, entry.middle)
    return noted


def _missing(run: LeasedRun, view: LedgerView, receipts: Receipts, result: PartitionAudit) -> Coverage:
    position = view.position(result.key, result.generation)
    if position is None or position.delivery != EXACTLY_ONCE:
        return Coverage()
    lacking = set(result.lacking)
    single = (one.source for one in result.single if one.kind is Kind.MISSING and one.source is not None)
    records = Coverage.of(OffsetRange(offset, offset + 1) for offset in single)
    missing = Coverage.of(
        range_
        for receipt in receipts.of(result.key, result.generation)
        if receipt.range in lacking
        for range_ in _missing_of(run, position, receipt, result.key, records)
    )
    return missing.intersection(position.coverage).subtract(view[result.key].removed.coverage)


def _missing_of(
    run: LeasedRun, position: Position, receipt: Receipt, key: PartitionKey, records: Coverage
) -> Iterable[OffsetRange]:
    """The source offsets of the chunk of which the target has nothing, if it stands between others there: all of them,
    or those of ``records``, which were found one by one.
    """
    kept = receipt.delivery == EXACTLY_ONCE and receipt.proof is not Proof.BY_KEY and receipt.ids == position.ids
    if not kept or receipt.interleaved or [part.partition for part in receipt.parts] != [key.target.partition]:
        return ()
    (part,) = receipt.parts
    standing, area = run.clusters.target.standing, OffsetRange(part.first, part.until)
    there = standing.logs([key.target]).get(key.target)
    if there is None or area.intersection(there) != area:
        return ()
    return records.within(receipt.range) if standing.first_record(key.target, area) is not None else (receipt.range,)
