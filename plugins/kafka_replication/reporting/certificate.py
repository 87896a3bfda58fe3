"""The certificate of a replication: what was copied, what is verified of it, and what is not, for a reader without us.

`certificate_page` makes the page of it, `signed` the files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from kafka_replication.documents import GapRow, GroupRow, Pair, Pairs, SpanRow, StatusRow
from kafka_replication.ledger.entries import Receipt
from kafka_replication.ledger.gap import ELSEWHERE
from kafka_replication.ledger.values import Adopted, Ids, Seal
from kafka_replication.model.choices import EXACTLY_ONCE, Promise
from kafka_replication.model.offsets import Coverage, PartitionKey, dump
from kafka_replication.reporting.audit import AuditDocument
from kafka_replication.reporting.failed import FailedRecordRow
from kafka_replication.watermarks.failed import OPEN
from kafka_replication.watermarks.sight import Drill

SHOWN = 5  # reasons in the sentence of the verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class CertifiedReceipts:
    """The sum of the receipts of the source offsets ``ranges``. ``records`` are on the target, and come from
    ``sources`` source records; ``bytes`` are of keys, values and headers. ``sha256`` is that of the canonical JSON
    (no blanks, UTF-8) of ``[[from, until, count, kind of digest, digest], ...]``, ordered by source offsets.
    """

    ranges: Pairs
    receipts: int
    records: int
    sources: int
    bytes: int
    filtered: int
    quarantined: int
    skipped: int
    sha256: str

    @classmethod
    def of(cls, receipts: Iterable[Receipt]) -> CertifiedReceipts:
        ordered = sorted(receipts, key=lambda receipt: receipt.range)
        lines = [[one.range.from_, one.range.until, one.count, one.digest_kind, one.digest] for one in ordered]
        return cls(
            ranges=Coverage.of(one.range for one in ordered),
            receipts=len(ordered),
            records=sum(one.count for one in ordered),
            sources=sum(one.copied for one in ordered),
            bytes=sum(one.bytes for one in ordered),
            filtered=sum(one.filtered for one in ordered),
            quarantined=sum(one.quarantined for one in ordered),
            skipped=sum(one.skipped for one in ordered),
            sha256=hashlib.sha256(dump(lines)).hexdigest(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CertifiedPartition(SpanRow):
    """One partition, in source offsets unless it says otherwise. From ``from`` to ``until`` it was copied or given up.

    ``copied`` is or was on the target, backfills below ``from`` too; ``verified`` of it was read back and compared,
    ``pending`` was not; ``expired`` has no receipt any more. ``gone`` is not on the target now, ``missed`` is the part
    of it that nothing explains. Our records end before the target offset ``target_until``, and the target shows its
    offsets ``target_log``, null if it does not answer. ``wanted_until`` is the end that was asked for, null if none.
    ``failed`` lists the records that were set aside; ``undecided`` of them wait for a person. ``status`` is the line of
    the whole partition in ``status --json`` at that time. ``error`` contradicts what the ledger says, or is empty.
    """

    generation: int
    ids: Ids
    copied: Pairs
    verified: Pairs
    verified_by: str
    verified_at: str
    pending: Pairs
    expired: Pairs
    gone: Pairs
    missed: Pairs
    receipts: CertifiedReceipts
    gaps: tuple[GapRow, ...]
    adopted: Adopted | None
    seal: Seal | None
    failed: tuple[FailedRecordRow, ...]
    undecided: int
    target_until: int
    target_log: Pair | None
    wanted_until: int | None
    status: StatusRow | None
    error: str

    def of(self, replication: str) -> PartitionKey:
        """Its key: a document does not repeat the replication in each row."""
        return PartitionKey(replication, self.source, self.target_topic)

    @property
    def beyond(self) -> int:
        """Source offsets behind ``until`` that were never copied, as far as somebody has seen them."""
        end = self.status.source_end if self.status else None
        return max(0, end - self.until) if end is not None and self.wanted_until is None and self.is_opened else 0

    @property
    def is_opened(self) -> bool:
        return self.generation > 0

    @property
    def reasons(self) -> Iterator[str]:
        """The reasons why not everything of it is verified."""
        if not self.is_opened:
            yield "nothing of it was copied"
        if self.pending:
            yield f"{self.pending} were copied and not verified"
        if self.missed:
            yield f"{self.missed} are no longer on the target, and nothing explains it"
        if self.undecided:
            yield f"{self.undecided} records that could not be copied wait for a decision"
        if self.wanted_until is not None and self.until < self.wanted_until:
            yield f"it was copied until {self.until}, and {self.wanted_until} was asked for"
        if self.error:
            yield self.error

    @property
    def remarks(self) -> Iterator[str]:
        """The facts that a reader has to know beside the verdict."""
        for gap in self.gaps:
            if gap.kind in ELSEWHERE:
                yield from [str(gap)] * bool(gap.range.span)
                continue
            what = "verification of" if gap.copied else "copy of"
            yield f"the {what} {gap.range.span} offsets {gap.range} was given up by {gap.approved_by}: {gap.reason}"
        if self.adopted is not None:
            yield (
                f"what lies below {self.from_} was copied by another tool: of its copy {self.adopted.compared} records"
                f" were compared ({self.adopted.proof}), with {self.adopted.doubles} doubles and"
                f" {self.adopted.missing} source records missing"
            )
        if self.verified_by == "count":
            yield "records were counted, and not compared by digest"
        if self.receipts.filtered:
            yield f"{self.receipts.filtered} records were left out by the filter or the transform"
        closed = [row.state for row in self.failed if row.state not in OPEN]
        if closed:
            states = ", ".join(f"{closed.count(state)} {state}" for state in sorted(set(closed)))
            yield f"{len(closed)} records could not be copied at first: {states}"
        if explained := self.gone.subtract(self.missed):
            yield f"{explained} were on the target and are not there now: its retention, or an approval, explains it"
        if self.expired:
            yield f"the receipts of {self.expired} have expired: counts and digests are without them"
        yield from self._of_status()

    def _of_status(self) -> Iterator[str]:
        status = self.status
        if status is None:
            return
        if status.delivery != EXACTLY_ONCE:
            lost, doubles = status.lost_in_delivery, status.duplicates
            yield f"it was copied with {status.delivery}: {lost} records lost in delivery, {doubles} doubles"
        if self.wanted_until is None and self.is_opened:
            if status.source_end is None:
                yield "the source was not asked: what it has beyond this is not known"
            elif self.beyond:
                seen = ", when it was looked at last" if status.high_watermark is None else ""
                yield f"the source had {self.beyond} more offsets{seen}, which were not copied"


@dataclass(frozen=True, slots=True, kw_only=True)
class CertifiedSelection:
    """The part of a replication that is certified; null means no limit. Offsets are widened to whole chunks. The time
    ``until_time`` is the end of each partition's own offset, ``wanted_until`` in its row.
    """

    topic: str | None
    partition: int | None
    from_offset: int
    until_offset: int | None
    until_time: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """The state of a copy, as ledger, target and source said at ``time``. ``about`` says why it was made. ``cut`` is
    the time from which on nobody had written to the source, if that was known when the direction was sealed, RFC 3339
    UTC; null otherwise. ``verified`` is false if something of it is not verified: ``verdict`` says so in one sentence,
    ``reasons`` has all reasons, and ``remarks`` what a reader has to know beside it. ``settings`` are those of the
    replication's file that decide what is copied and how, ``filter_and_transform`` names both with a hash, empty
    without. ``groups`` are as they were seen and moved the last time, ``drill`` is the last failover drill; null if
    there was none.
    """

    format: Literal[1] = 1
    product: str
    time: str
    about: str
    replication: str
    run_id: str
    settings: Mapping[str, Any]
    filter_and_transform: str
    promise: Promise
    source_cluster: str
    target_cluster: str
    selection: CertifiedSelection
    verified: bool
    verdict: str
    reasons: tuple[str, ...]
    remarks: tuple[str, ...]
    partitions: tuple[CertifiedPartition, ...]
    groups: tuple[GroupRow, ...]
    drill: Drill | None
    cut: str | None = None


def judged(partitions: Sequence[CertifiedPartition], groups: Sequence[GroupRow]) -> dict[str, Any]:
    """The fields of a `Certificate` that say how good it is."""
    reasons = [f"{one.source}: {text}" for one in partitions for text in one.reasons]
    remarks = [f"{one.source}: {text}" for one in partitions for text in one.remarks]
    for group in groups:
        if group.exact < len(group.partitions) or group.why:
            again = f"{group.exact} of {len(group.partitions)} places exact, at most {group.again} records again"
            remarks.append(f"group {group.group}: {again}{f'; {group.why}' if group.why else ''}")
    records = sum(one.receipts.records for one in partitions)
    levels = sorted({one.verified_by for one in partitions if one.verified}) or ["nothing was to be compared"]
    if reasons:
        more = f"; and {len(reasons) - SHOWN} more reasons" if len(reasons) > SHOWN else ""
        verdict = f"Not everything is verified: {'; '.join(reasons[:SHOWN])}{more}."
    else:
        given_up = sum(gap.range.span for one in partitions for gap in one.gaps if gap.kind not in ELSEWHERE)
        adopted = sum(one.adopted is not None for one in partitions)
        beyond = sum(one.beyond for one in partitions)
        beside = [f"{given_up} source offsets were given up"] * bool(given_up)
        beside += [f"the source had {beyond} offsets that were never copied"] * bool(beyond)
        beside += [f"{adopted} partitions begin with a copy of another tool"] * bool(adopted)
        beside += [f"{len(remarks)} remarks belong to this"] * bool(remarks)
        verdict = "; ".join(
            [
                f"Everything that this replication copied is verified: {records} records with receipts in"
                f" {len(partitions)} partitions ({', '.join(levels)})",
                *beside,
            ]
        )
        verdict += "."
    return {"verified": not reasons, "verdict": verdict, "reasons": tuple(reasons), "remarks": tuple(remarks)}


@dataclass(frozen=True, slots=True, kw_only=True)
class CertifiedDocument:
    """``certify``: ``name`` is that of both files, which the store keeps; null for those that were not written to a
    folder, too. ``signed_by`` is the SHA-256 of the public key in DER; null: not signed.
    """

    name: str
    json_file: str | None
    page_file: str | None
    signed_by: str | None
    certificate: Certificate

    @property
    def text(self) -> str:
        remarks = (f"REMARK {remark}" for remark in self.certificate.remarks)
        return "\n".join([self.certificate.verdict, *remarks, *self.where])

    @property
    def where(self) -> tuple[str, ...]:
        """The places of both files, and who signed them."""
        files = [file for file in (self.json_file, self.page_file) if file]
        signed = f"signed by key {self.signed_by}" if self.signed_by else "NOT SIGNED: a change cannot be noticed"
        return (*files, f"the store keeps it as {self.name}: the page of the replication in Airflow has it", signed)


KeyState = Literal["expected", "not compared", "another key", "not signed", "no valid signature"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedCertificate:
    """``certify --check``. ``problems`` is empty if nothing is wrong. ``signed_by``: as in `CertifiedDocument`.
    ``audit`` is the new audit of the data; null without ``--data``.
    """

    files: tuple[str, ...]
    signed_by: str | None
    key: KeyState
    verdict: str
    problems: tuple[str, ...]
    notes: tuple[str, ...]
    audit: AuditDocument | None = None

    @property
    def text(self) -> str:
        said = {
            "expected": f"signed by the expected key {self.signed_by}",
            "not compared": f"signed by key {self.signed_by}; not compared with a known key (--public-key)",
            "another key": f"signed by ANOTHER KEY, {self.signed_by}",
            "no valid signature": "NO VALID SIGNATURE",
            "not signed": "NOT SIGNED: a change cannot be noticed",
        }
        lines = [f"checked {file}" for file in self.files] + [said[self.key]]
        lines += [f"WRONG {problem}" for problem in self.problems] + [f"NOTE {note}" for note in self.notes]
        if not self.problems:
            lines.append(f"the certificate is as it was made; it says: {self.verdict}")
        return "\n".join(lines)
