"""Checks a certificate: its files, and the data that it is about."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError

from kafka_replication.documents import GapRow, adapter
from kafka_replication.ledger.receipts import Receipts
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.errors import BadInput, ReplicationError
from kafka_replication.model.offsets import MAX_OFFSET, Coverage, OffsetRange, PartitionKey, dump
from kafka_replication.reporting import signed
from kafka_replication.reporting.audit import PartitionAudit
from kafka_replication.reporting.certificate import (
    Certificate,
    CertifiedPartition,
    CertifiedReceipts,
    CheckedCertificate,
    KeyState,
)
from kafka_replication.runs import adopting
from kafka_replication.runs.audit import audit
from kafka_replication.runs.audit_choosing import EVERYTHING, AuditRequest
from kafka_replication.runs.certifying import of_position
from kafka_replication.runs.run import Run
from kafka_replication.spark.launcher import Launcher


def check(
    path: Path, public_key: Path | None, secret: Callable[[str], str]
) -> tuple[CheckedCertificate, Certificate | None]:
    """Check both files of a certificate; ``path`` is one of them. ``public_key`` is a PEM file: the key that is
    expected, without it that of the own private key, if the environment names one (``secret``: see `signed`). The
    certificate is None if the JSON file is not there or was changed. Raises BadInput if ``path`` is neither, or cannot
    be read.
    """
    if path.suffix not in (".json", ".html"):
        raise BadInput(f"{path} is not a file of a certificate", "name its .json or its .html file")
    expected = signed.known_key(public_key, secret)
    json_file, page_file = path.with_suffix(".json"), path.with_suffix(".html")
    files = {file: data for file in (json_file, page_file) if (data := _bytes(file, needed=file == path)) is not None}
    problems, keys, made = list[str](), list[bytes](), None
    for file, data in files.items():
        try:
            if file == json_file:
                content, key = signed.read_json(data)
                made = _certificate(content)
            else:
                key = signed.read_page(data)
            keys.append(key)
        except ValueError as error:
            problems.append(f"{file}: {error}")
    if len(files) == 2 and hashlib.sha256(files[json_file]).hexdigest().encode() not in files[page_file]:
        problems.append(f"{page_file} was not made of {json_file}: it has another SHA-256")
    state, problem = _key_state(keys, expected)
    checked = CheckedCertificate(
        files=tuple(map(str, files)),
        signed_by=signed.fingerprint(keys[0]) if keys and keys[0] else None,
        key=state,
        verdict=made.verdict if made else "",
        problems=(*problems, *([problem] if problem else ())),
        notes=tuple(f"{file} is not there: it was not checked" for file in (json_file, page_file) if file not in files),
    )
    return checked, made


def _certificate(content: bytes) -> Certificate:
    """Raises ValueError."""
    try:
        if dump(json.loads(content)) != content:
            raise ValueError("it is not in canonical JSON: it was changed")
        return adapter(Certificate).validate_json(content)
    except ValidationError as e:
        raise ValueError("this version cannot read it: use the one that it names as product, or a newer one") from e


def _key_state(keys: Sequence[bytes], expected: bytes | None) -> tuple[KeyState, str]:
    """The state of the key that signed the files, and what is wrong with it."""
    if len(set(keys)) > 1:
        return "another key", "the two files are not signed by the same key"
    if not keys:
        return "no valid signature", ""
    if not keys[0]:
        return "not signed", "it is not signed, so nothing shows whether it was changed"
    if expected is None:
        return "not compared", ""
    if keys[0] != expected:
        names = signed.fingerprint(keys[0]), signed.fingerprint(expected)
        return "another key", f"it is signed by key {names[0]}, not by the expected one, {names[1]}"
    return "expected", ""


def _bytes(file: Path, *, needed: bool) -> bytes | None:
    try:
        return file.read_bytes()
    except FileNotFoundError as e:
        if needed:
            raise BadInput(f"{file} is not there", "name the .json or the .html file of a certificate") from e
        return None
    except OSError as e:
        raise BadInput(f"{file} cannot be read: {e.strerror}", "make it readable") from e


def with_data(run: Run, checked: CheckedCertificate, made: Certificate | None, spark: Launcher) -> CheckedCertificate:
    """The result with what the ledger says now, and a new audit of what the certificate is about. Raises BadInput,
    Unreachable, LedgerUnreadable.
    """
    if made is None:
        problem = "the data was not compared: its .json file is not there, or was changed"
        return replace(checked, problems=(*checked.problems, problem))
    problems, notes = [*checked.problems], [*checked.notes]
    if made.replication != run.replication.name:
        problem = f"it is of replication {made.replication}, not of {run.replication.name}: no data was compared"
        return replace(checked, problems=(*problems, problem))
    target = run.clusters.target.catalogue.cluster_id()
    if made.target_cluster != target:
        problem = f"it is of target cluster {made.target_cluster}, not of {target}: no data was compared"
        return replace(checked, problems=(*problems, problem))
    view = run.view()
    certified = {one.of(made.replication): one for one in made.partitions if one.is_opened}
    ours = {key: view.positions[key] for key in certified.keys() & view.positions.keys()}
    receipts = run.clusters.ledger.receipts(dict.fromkeys(ours))
    for key, one in certified.items():
        expired = Coverage()
        if key in receipts.stored and receipts.incomplete(key):
            expired = one.receipts.ranges.subtract(Coverage.of(each.range for each in of_position(view, receipts, key)))
        if expired:
            notes.append(f"{one.source}: receipts of {expired} have expired since: no counts and digests were compared")
        problems += [f"{one.source}: {text}" for text in _changed(view, receipts, key, one, is_expired=bool(expired))]
    if ours:
        audited = audit(run, _audited(made, view), spark)
        rows = [row for row in audited.partitions if row.key in certified]
        problems += [
            f"{row.key.source}: the audit of {row.range} says: {_said(row)}" for row in rows if row.outcome != "clean"
        ]
        for key, position in sorted(ours.items()):
            other = f"{key.source}: the copy of another tool below {position.start}"
            try:
                changed = adopting.changed_since(run, key, position)
                problems += [f"{other}: {changed}"] if changed else []
            except ReplicationError as error:
                notes.append(f"{other} was not compared: {error.what}")
        notes.append(f"records and receipts were compared again just now: {audited.verdict}")
        checked = replace(checked, audit=audited.document(limit=20))
    return replace(checked, problems=tuple(problems), notes=tuple(notes))


def _changed(
    view: LedgerView, receipts: Receipts, key: PartitionKey, one: CertifiedPartition, *, is_expired: bool
) -> Iterator[str]:
    """The facts of the certificate that the ledger does not have any more. It may have more since."""
    position = view.positions.get(key)
    if position is None:
        yield "the ledger has no position of it any more"
        return
    if (position.generation, position.ids) != (one.generation, one.ids):
        yield "it was reset since, or a topic was created again: what the ledger has now is another copy"
        return
    account = view[key]
    if lacking := one.copied.subtract(position.coverage):
        yield f"the ledger does not say any more that {lacking} were copied"
    if lacking := one.verified.subtract(account.verified.coverage):
        yield f"the ledger does not say any more that {lacking} were verified"
    approved = {GapRow.of(key, gap) for gap in account.gaps}
    if gone := [gap for gap in one.gaps if replace(gap, replication=key.replication) not in approved]:
        yield f"the ledger has the approval of {gone[0].range} no more, or another one"
    within = [each for each in of_position(view, receipts, key) if one.receipts.ranges.contains(each.range)]
    if not is_expired and CertifiedReceipts.of(within) != one.receipts:
        yield f"the receipts of {one.receipts.ranges} are others now: they were changed, or offsets were copied again"


def _audited(made: Certificate, view: LedgerView) -> AuditRequest:
    """The audit of the part that the certificate is about. All of the target is searched for records of others, unless
    the direction is sealed: then others may write behind our records.
    """
    chosen, until = made.selection, made.selection.until_offset
    if until is None and chosen.until_time:
        until = max((one.until for one in made.partitions), default=0)
    range_ = OffsetRange(chosen.from_offset, MAX_OFFSET if until is None else until)
    if range_ == EVERYTHING and any(position.sealed for position in view.positions.values()):
        range_ = OffsetRange(0, max(position.next_offset for position in view.positions.values()))
    return AuditRequest(chosen.topic, chosen.partition, range_)


def _said(row: PartitionAudit) -> str:
    counts = [f"{count} records {kind}" for kind, count in row.counts.items() if count]
    return "; ".join([*counts, *row.errors])
