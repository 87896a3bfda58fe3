"""The page of a certificate: one HTML file without scripts or anything from elsewhere, to be read and printed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from kafka_replication.model.times import amount
from kafka_replication.reporting.certificate import Certificate, CertifiedPartition

_STYLE: Final = """
:root { color-scheme: light; } body { margin: 0 auto; max-width: 1200px; padding: 16px; color: #18181b;
 background: #fff; font: 14px/1.45 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 20px; } h2 { font-size: 16px; margin: 24px 0 8px; break-after: avoid; }
table { border-collapse: collapse; width: 100%; } th, td { text-align: left; vertical-align: top; padding: 4px 8px;
 border-bottom: 1px solid #d4d4d8; } thead th { color: #52525b; overflow-wrap: normal; }
td { font-variant-numeric: tabular-nums; }
.verdict { padding: 8px 12px; border-left: 4px solid #166534; background: #f0fdf4; font-weight: 600; }
.not { border-color: #b91c1c; background: #fef2f2; }
@page { margin: 12mm; } @media print { body { max-width: none; padding: 0; font-size: 9pt; }
 thead { display: table-header-group; } tr { break-inside: avoid; } th, td { padding: 2px 4px; }
 * { print-color-adjust: exact; } }
"""


def _table(title: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A section with a table; empty without rows."""
    body = "".join(f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>\n" for row in rows)
    cells = "".join(f"<th>{escape(name)}</th>" for name in head)
    return f"<h2>{escape(title)}</h2>\n<table><thead><tr>{cells}</tr></thead><tbody>\n{body}</tbody></table>\n" * bool(
        body
    )


def _list(title: str, lines: Sequence[str]) -> str:
    return f"<h2>{title}</h2>\n<ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>\n" if lines else ""


def page(certificate: Certificate, json_name: str, json_sha256: str, key: str | None) -> str:
    """The page. ``json_sha256`` is that of the JSON file, ``key`` the fingerprint of the key; None: not signed."""
    one, partitions = certificate, certificate.partitions
    chosen = one.selection
    part = f"{chosen.topic or 'all topics'}, {'all partitions' if chosen.partition is None else chosen.partition}"
    if chosen.from_offset or chosen.until_offset is not None:
        part += (
            f", source offsets [{chosen.from_offset}, {'end' if chosen.until_offset is None else chosen.until_offset})"
        )
    if chosen.until_time:
        part += f", until {chosen.until_time}: in each partition the first record of that time or later is the end"
    facts = [
        ("about", one.about),
        ("part", part),
        ("cut: nobody had written to the source since", one.cut or "not known, or not sealed"),
        ("time", one.time),
        ("made by", f"{one.product}, run {one.run_id}"),
        ("source cluster", one.source_cluster or "not known"),
        ("target cluster", one.target_cluster),
        ("last failover drill", f"{one.drill.at}: {one.drill.sentence}" if one.drill else "none yet"),
        ("filter and transform", one.filter_and_transform or "none"),
        ("JSON file", json_name),
        ("JSON file, SHA-256", json_sha256),
        ("signed by key", key or "NOT SIGNED: a change of this page cannot be noticed"),
    ]
    title = f"Certificate of replication {one.replication}"
    return "".join(
        [
            f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>\n',
            f"<style>{_STYLE}</style></head><body>\n<h1>{escape(title)}</h1>\n",
            f'<p class="verdict{"" if one.verified else " not"}">{escape(one.verdict)}</p>\n',
            _list("Reasons", one.reasons),
            _list("Remarks", one.remarks),
            _table("This certificate", ("", ""), facts),
            _copies(partitions),
            _losses(partitions),
            _table(
                "Consumer groups",
                ("group", "state", "exact places", "records read again at most", "moved at", "remark"),
                (
                    (row.group, row.state, f"{row.exact} of {len(row.partitions)}", row.again, row.moved_at, row.why)
                    for row in one.groups
                ),
            ),
            _table("Settings", ("key", "value"), ((key, json.dumps(value)) for key, value in one.settings.items())),
            "<p>Offsets are of the source unless a column says otherwise; a range [a, b) has a and not b. The JSON file"
            " has everything on this page and more. docs/certificates.md of kafka-replication says what this proves,"
            " and how a reader without the product checks it.</p>\n</body></html>\n",
        ]
    )


def _copies(partitions: Sequence[CertifiedPartition]) -> str:
    return _table(
        "Partitions",
        (
            *("partition", "target", "offsets", "verified", "by", "at", "records", "size", "filtered", "set aside"),
            *("our target end", "target shows", "source end"),
        ),
        (
            (
                row.source,
                row.target_topic,
                row.range,
                row.verified,
                row.verified_by,
                row.verified_at or "-",
                row.receipts.records,
                amount(row.receipts.bytes),
                row.receipts.filtered,
                len(row.failed),
                row.target_until,
                row.target_log or "?",
                "?" if row.status is None or row.status.source_end is None else row.status.source_end,
            )
            for row in partitions
        ),
    ) + _table(
        "Identities and digests",
        ("partition", "source topic id", "target topic id", "generation", "receipts of", "receipts", "their SHA-256"),
        (
            (
                row.source,
                row.ids.source_topic,
                row.ids.target_topic,
                row.generation,
                row.receipts.ranges,
                row.receipts.receipts,
                row.receipts.sha256,
            )
            for row in partitions
        ),
    )


def _losses(partitions: Sequence[CertifiedPartition]) -> str:
    return (
        _table(
            "Offsets that were given up",
            ("partition", "offsets", "kind", "by", "reason", "time"),
            (
                (gap.source, gap.range, gap.kind, gap.approved_by, gap.reason, gap.time)
                for row in partitions
                for gap in row.gaps
            ),
        )
        + _table(
            "Records that were set aside",
            ("partition", "offset", "why", "state", "where it lies", "decided by", "reason"),
            (
                (
                    failed.source,
                    failed.offset,
                    f"{failed.kind}: {failed.reason}",
                    failed.state,
                    failed.place or "-",
                    failed.history[-1].by or "-",
                    failed.history[-1].reason or "-",
                )
                for row in partitions
                for failed in row.failed
            ),
        )
        + _table(
            "Copies of another tool",
            ("partition", "below offset", "hint", "compared target offsets", "records", "doubles", "missing", "time"),
            (
                (
                    row.source,
                    row.from_,
                    f"{row.adopted.source}, {row.adopted.proof}",
                    f"[{row.adopted.target_from}, {row.adopted.target_until})",
                    row.adopted.compared,
                    row.adopted.doubles,
                    row.adopted.missing,
                    row.adopted.time,
                )
                for row in partitions
                if row.adopted
            ),
        )
        + _table(
            "No longer on the target",
            ("partition", "offsets", "not explained"),
            ((row.source, row.gone, row.missed) for row in partitions if row.gone),
        )
        + _table(
            "Sealed: nothing more is copied in this direction",
            ("partition", "by", "reason", "time", "target ended at"),
            (
                (row.source, f"{row.seal.by} ({row.seal.why})", row.seal.reason, row.seal.time, row.seal.target_until)
                for row in partitions
                if row.seal
            ),
        )
    )
