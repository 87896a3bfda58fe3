"""Makes the certificate of a replication, or of a part of it.

`certify` is for commands that end with a certificate, too. Takes no lease, and changes no record.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import kafka_replication
from kafka_replication.documents import GapRow, as_json, place
from kafka_replication.ledger.entries import Receipt
from kafka_replication.ledger.receipts import Receipts, committed
from kafka_replication.ledger.values import Ids
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.choices import STATES
from kafka_replication.model.errors import BadInput, Refused
from kafka_replication.model.offsets import MAX_OFFSET, Coverage, OffsetRange, PartitionKey, TopicPartition
from kafka_replication.model.times import exactly, now
from kafka_replication.planning.live import own
from kafka_replication.planning.plan import State
from kafka_replication.reporting import certificate_page, signed
from kafka_replication.reporting.certificate import (
    Certificate,
    CertifiedDocument,
    CertifiedPartition,
    CertifiedReceipts,
    CertifiedSelection,
    judged,
)
from kafka_replication.reporting.failed import FailedRecordRow
from kafka_replication.reporting.status import PartitionStatus
from kafka_replication.runs.audit_choosing import ALL, EVERYTHING, AuditRequest
from kafka_replication.runs.failed_records import Selection, failed_records
from kafka_replication.runs.reporting import standing
from kafka_replication.runs.run import Request, Run
from kafka_replication.watermarks.sight import CertificateRow

# The keys of a file that do not decide what is copied, nor what is promised of it.
OTHERS: Final = {
    *("name", "schedule", "max_records_per_run", "copying", "target_topics", "groups", "acls", "spark", "retries"),
    *("timeouts", "retention", "alerts", "tags", "description"),
}


def certify(
    run: Run,
    out: Path | None,
    request: AuditRequest = ALL,
    *,
    until: datetime | None = None,
    key: str = "",
    about: str = "",
) -> CertifiedDocument:
    """Keep a certificate in the store, and write both of its files into the folder ``out``, if one is given. ``until``
    is the end of what is certified, as a time. ``key`` names the private key as `signed.signing_key` takes it;
    ``about`` says why the certificate is made.

    Raises BadInput, ConnectionMissing, Refused if nothing was copied, Unreachable.
    """
    private = signed.signing_key(key, run.clusters.secret)
    if out is not None and not out.is_dir():
        raise BadInput(f"{out}: is not a folder", "make it, or name another one with --out")
    made = look(run, request, until=until, about=about)
    stem = f"{made.replication}-{made.time.replace(':', '')}"
    data = signed.signed_json(as_json(made), private)
    by = signed.fingerprint(private.public_key().public_bytes_raw()) if private else None
    page = certificate_page.page(made, f"{stem}.json", hashlib.sha256(data).hexdigest(), by)
    html = signed.signed_page(page, private)
    at, about = datetime.fromisoformat(made.time), made.about
    kept = CertificateRow(name=stem, time=at, about=about, verified=made.verified, verdict=made.verdict, signed_by=by)
    run.store.keep_certificate(made.replication, kept, data, html)
    files = {out / f"{stem}.json": data, out / f"{stem}.html": html} if out else {}
    for path, content in files.items():
        try:
            with path.open("xb") as written:
                written.write(content)
        except OSError as e:
            raise BadInput(f"cannot write {path}: {e.strerror}", "name a folder that is yours with --out") from e
    json_file, page_file = map(str, files) if files else (None, None)
    return CertifiedDocument(name=stem, json_file=json_file, page_file=page_file, signed_by=by, certificate=made)


def look(run: Run, request: AuditRequest = ALL, *, until: datetime | None = None, about: str = "") -> Certificate:
    """The certificate. Raises Refused if nothing was copied, Unreachable, LedgerUnreadable."""
    statuses = {row.key: row for row in standing(run, Run.snapshot_to_show) if request.asks_for(row.key)}
    view = own(run.replication, run.view())
    keys = [key for key in view.positions if request.asks_for(key)]
    if not keys:
        raise Refused(f"{run.replication.name}: nothing was copied of this yet", "check --topic and --partition")
    ends = run.snapshot(view, Request(until=until)).until if until else {}
    making = _Making(run, request, view, keys, ends)
    partitions = [making.partition(key, statuses.get(key)) for key in sorted(keys)]
    partitions += [_never_opened(row) for key, row in sorted(statuses.items()) if key not in view.positions]
    groups = tuple(run.store.groups(run.replication.name))
    end = request.range.until
    return Certificate(
        product=f"kafka-replication {kafka_replication.__version__}",
        time=now(),
        about=about or ("replication" if request == ALL and not until else "part of a replication"),
        replication=run.replication.name,
        run_id=run.run_id,
        settings=run.replication.model_dump(mode="json", by_alias=True, exclude=OTHERS),
        filter_and_transform=str(run.transform or ""),
        promise=run.clusters.promise,
        source_cluster=", ".join(sorted({row.ids.source_cluster for row in partitions} - {""})),
        target_cluster=run.clusters.target.catalogue.cluster_id(),
        selection=CertifiedSelection(
            topic=request.topic,
            partition=request.partition,
            from_offset=request.range.from_,
            until_offset=None if end == MAX_OFFSET else end,
            until_time=exactly(until.astimezone(UTC)) if until else None,
        ),
        partitions=tuple(partitions),
        groups=groups,
        drill=run.store.last_drill(run.replication.name),
        cut=view.cut,
        **judged(partitions, groups),
    )


class _Making:
    """Makes the partitions of one certificate: reads once for all of them."""

    def __init__(
        self,
        run: Run,
        request: AuditRequest,
        view: LedgerView,
        keys: Sequence[PartitionKey],
        ends: Mapping[TopicPartition, int],
    ) -> None:
        self._request, self._view, self._ends = request, view, ends
        self._receipts = run.clusters.ledger.receipts(dict.fromkeys(keys))
        self._logs = run.clusters.target.standing.logs([key.target for key in keys])
        self._lost = run.comparison.lost_now(view, list(keys))
        rows = run.store.standing_partitions(run.replication.name)
        self._seen = {PartitionKey(run.replication.name, one.source, one.target_topic): one.source_end for one in rows}
        chosen = Selection(topic=request.topic, partition=request.partition, states=STATES)
        self._failed = failed_records(run, view, chosen)

    def partition(self, key: PartitionKey, status: PartitionStatus | None) -> CertifiedPartition:
        account, position = self._view[key], self._view.positions[key]
        until = min(self._request.range.until, self._ends.get(key.source, MAX_OFFSET))
        asked = OffsetRange(min(self._request.range.from_, until), until)
        whole = asked == EVERYTHING
        receipts = of_position(self._view, self._receipts, key)
        range_ = OffsetRange(position.start, position.next_offset)
        wanted_until = None
        if not whole:
            receipts = [one for one in receipts if one.range.intersection(asked)]
            gaps = (gap.range for gap in account.gaps if gap.range.intersection(asked))
            there = Coverage.of([*(one.range for one in receipts), *gaps])
            there = there.union(position.coverage.within(asked))
            range_ = OffsetRange(there.ranges[0].from_, there.ranges[-1].until) if there else OffsetRange(0, 0)
            wanted_until = None if asked.until == MAX_OFFSET else asked.until
        area = OffsetRange(0, MAX_OFFSET) if whole else range_
        if status is not None and position.sealed and status.high_watermark is None:  # the source is not asked any more
            status = replace(status, source_end=self._seen.get(key))
        copied = position.coverage.subtract(account.given_up()).within(area)
        mine = (key, position.generation)
        failed = [row for row in self._failed if (row.key, row.generation) == mine and row.offset in area]
        open_ = sum(row.is_open for row in failed)
        lost = key in self._lost
        return CertifiedPartition(
            **place(key, range_),
            generation=position.generation,
            ids=position.ids,
            copied=copied,
            verified=account.verified.coverage.within(area),
            verified_by=account.level,
            verified_at=account.verified.time,
            pending=account.pending().within(area),
            expired=copied.subtract(Coverage.of(one.range for one in receipts)).subtract(account.gone()),
            gone=account.gone().within(area),
            missed=account.missed().union(status.missed if status else Coverage()).within(area),
            receipts=CertifiedReceipts.of(receipts),
            gaps=tuple(GapRow.of(key, gap) for gap in account.gaps if gap.range.intersection(area)),
            adopted=position.adopted,
            seal=position.sealed,
            failed=tuple(map(FailedRecordRow.of, failed)),
            undecided=max(open_, account.undecided()) if whole else open_,
            target_until=max(position.ends(key.source.partition).values(), default=0),
            target_log=self._logs.get(key.target),
            wanted_until=wanted_until,
            status=status,
            error=f"{key.target} on the target does not show our last record" if lost else self._error(key, status),
        )

    def _error(self, key: PartitionKey, status: PartitionStatus | None) -> str:
        """A contradiction to the ledger; empty if there is none. A seal is none, nor a source that does not answer."""
        if key.target not in self._logs:
            return f"{key.target} on the target does not answer"
        if status is None or status.missed or status.plan.state in (State.SEALED, State.UNREADABLE):
            return ""
        return status.error or ""


def of_position(view: LedgerView, receipts: Receipts, key: PartitionKey) -> list[Receipt]:
    """The receipts of the present generation that the position knows: later ones may have been read with them."""
    position = view.positions[key]
    own_ = committed(receipts.of(key, position.generation), position.coverage)
    return [one for one in own_ if position.coverage.contains(one.range)]


def _never_opened(row: PartitionStatus) -> CertifiedPartition:
    return CertifiedPartition(
        **place(row.key, OffsetRange(0, 0)),
        generation=0,
        ids=Ids("", "", ""),
        copied=Coverage(),
        verified=Coverage(),
        verified_by=row.verified_by,
        verified_at="",
        pending=Coverage(),
        expired=Coverage(),
        gone=Coverage(),
        missed=Coverage(),
        receipts=CertifiedReceipts.of(()),
        gaps=(),
        adopted=None,
        seal=None,
        failed=(),
        undecided=0,
        target_until=0,
        target_log=None,
        wanted_until=None,
        status=row,
        error=row.error or "",
    )
