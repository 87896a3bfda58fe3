"""The JSON of ledger entries. Each kind has its own versions, and every version that was ever written stays readable.

An entry is a JSON object with ``type`` (its kind), ``format`` (the version of that kind) and the fields of that
version (`formats`). The required fields of a version never change. An optional field can be added at any time: a
reader that does not know it keeps it in ``extra``. A field that a reader must understand needs a new version: an
older reader then refuses the entry and asks for an upgrade. Unknown content inside a known field is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from pydantic import ValidationError

from kafka_replication.ledger import fields, formats
from kafka_replication.ledger.entries import (
    Deleted,
    Entry,
    FailedRecord,
    Gap,
    Handled,
    Position,
    Receipt,
    Removed,
    Start,
    Verified,
)
from kafka_replication.ledger.placement import UPGRADE, KafkaPartitions, KafkaSegments, Part, Placement
from kafka_replication.ledger.record_keys import FOREIGN
from kafka_replication.model.delivery import EXACTLY_ONCE
from kafka_replication.model.errors import LedgerUnreadable
from kafka_replication.model.keys import dump
from kafka_replication.model.offsets import OffsetRange

# Every version of every kind, for ever. The highest version of a kind is the one that is written.
FORMATS: Mapping[str, Mapping[int, type[formats.EntryFormat]]] = {
    "position": {1: formats.Position1},
    "verified": {1: formats.Verified1},
    "gap": {1: formats.Gap1},
    "start": {1: formats.Start1},
    "deleted": {1: formats.Deleted1},
    "removed": {1: formats.Removed1},
    "handled": {1: formats.Handled1},
    "receipt": {1: formats.Receipt1, 2: formats.Receipt2},
}


def encode(entry: Entry) -> bytes:
    """The entry as JSON of its kind's newest version: sorted keys, no spaces. Known fields win over ``extra``."""
    kind, content = _content(entry)
    return dump({**entry.extra, **content, "format": max(FORMATS[kind]), "type": kind})


def _content(entry: Entry) -> tuple[str, dict[str, Any]]:
    match entry:
        case Position():
            return "position", _position(entry)
        case Verified():
            return "verified", _verified(entry)
        case Gap():
            return "gap", _gap(entry)
        case Start():
            return "start", _start(entry)
        case Deleted():
            return "deleted", {"source_topic": entry.source_topic, "run_id": entry.run_id, "time": entry.time}
        case Removed():
            return "removed", _removed(entry)
        case Handled():
            return "handled", _handled(entry)
        case Receipt():
            return "receipt", _receipt(entry)


def _position(entry: Position) -> dict[str, Any]:
    return {
        "generation": entry.generation,
        "ids": asdict(entry.ids),
        "start": entry.start,
        "next_offset": entry.next_offset,
        "coverage": entry.coverage.encode(),
        "leader_epoch": entry.leader_epoch,
        "target_end": entry.target_end,
        **_receipts_from(entry),
        # optional
        **_delivery(entry),
        **({"quarantined": entry.quarantined} if entry.quarantined else {}),
        **({"skipped": entry.skipped} if entry.skipped else {}),
        **({"transform": asdict(entry.transform)} if entry.transform else {}),
        **({"spread": {"by": asdict(entry.spread.by), "ends": list(entry.spread.ends)}} if entry.spread else {}),
        **({} if entry.sent_from is None else {"sent_from": list(entry.sent_from)}),
    }


def _verified(entry: Verified) -> dict[str, Any]:
    return {
        "generation": entry.generation,
        "coverage": entry.coverage.encode(),
        "level": entry.level,
        "run_id": entry.run_id,
        "time": entry.time,
        **_receipts_from(entry),
        **_delivery(entry),
        **_known(lost_in_delivery=entry.lost_in_delivery or None, duplicates=entry.duplicates or None),
        **_known(judged_until=entry.judged_until),
    }


def _removed(entry: Removed) -> dict[str, Any]:
    return {
        "generation": entry.generation,
        "target_start": entry.target_start,
        "coverage": entry.coverage.encode(),
        "unexplained": entry.unexplained.encode(),
        "again": entry.again.encode(),
        "passed": entry.passed,
        "run_id": entry.run_id,
        "time": entry.time,
        "receipts_from": entry.receipts_from,
        **({"target_starts": list(entry.target_starts)} if entry.target_starts else {}),
    }


def _handled(entry: Handled) -> dict[str, Any]:
    return {
        "generation": entry.generation,
        "state": entry.state,
        "quarantined": entry.quarantined.encode(),
        "skipped": entry.skipped.encode(),
        "ids": asdict(entry.ids),
        "by": entry.by,
        "reason": entry.reason,
        "run_id": entry.run_id,
        "time": entry.time,
        "count": entry.count,
        "digest": entry.digest,
        "digest_kind": entry.digest_kind,
        "placement": _placement(entry.placement),
        # optional
        **({"not_visible": entry.not_visible.encode()} if entry.not_visible else {}),
        **({"given_back": entry.given_back.encode()} if entry.given_back else {}),
        **_known(number=entry.number or None),
    }


def _receipts_from(entry: Position | Verified) -> dict[str, int]:
    """An optional field. It is left out if it is not known."""
    return _known(receipts_from=entry.receipts_from)


def _delivery(entry: Position | Verified | Receipt) -> dict[str, str]:
    """An optional field. It is left out for ``exactly_once``."""
    return {} if entry.delivery == EXACTLY_ONCE else {"delivery": entry.delivery}


def _known(**optional: int | None) -> dict[str, int]:
    return {name: value for name, value in optional.items() if value is not None}


def _gap(entry: Gap) -> dict[str, Any]:
    return {
        "generation": entry.generation,
        "kind": entry.kind,
        "range": _pair(entry.range),
        "reason": entry.reason,
        "approved_by": entry.approved_by,
        "ids": asdict(entry.ids),
        "run_id": entry.run_id,
        "time": entry.time,
    }


def _start(entry: Start) -> dict[str, Any]:
    return {
        "source_cluster": entry.source_cluster,
        "source_topic": entry.source_topic,
        "start_from": entry.start_from,
        "offset": entry.offset,
        "time": entry.time,
    }


def _receipt(entry: Receipt) -> dict[str, Any]:
    return {
        "generation": entry.generation,
        "range": _pair(entry.range),
        "count": entry.count,
        "bytes": entry.bytes,
        "digest": entry.digest,
        "digest_kind": entry.digest_kind,
        "engine": entry.engine,
        "placement": _placement(entry.placement),
        "filtered": entry.filtered,
        "quarantined": entry.quarantined,
        "skipped": entry.skipped,
        "transform": asdict(entry.transform) if entry.transform else None,
        "offset_map": [[m.source_offset, m.target_partition, m.target_offset] for m in entry.offset_map],
        "ids": asdict(entry.ids),
        "run_id": entry.run_id,
        "time": entry.time,
        # optional
        **_delivery(entry),
        **_known(lost_in_delivery=entry.lost_in_delivery or None, duplicates=entry.duplicates or None),
        **_known(after=entry.after),
        **({"throttled": entry.throttled} if entry.throttled else {}),
        **({"failures": [_failed(failed) for failed in entry.failures]} if entry.failures else {}),
        **({"sources": entry.sources} if entry.copied != entry.count else {}),
    }


def _failed(failed: FailedRecord) -> dict[str, Any]:
    place = failed.place
    return {**asdict(failed), "place": [place.topic, place.partition, place.offset] if place else None}


def _placement(placement: Placement) -> dict[str, Any]:
    if isinstance(placement, KafkaSegments):
        return {"kind": fields.KAFKA_SEGMENTS, "segments": [asdict(segment) for segment in placement.segments]}
    if isinstance(placement, KafkaPartitions):
        parts = [_part(part) for part in placement.parts]
        return {"kind": fields.KAFKA_PARTITIONS, "by": asdict(placement.by), "parts": parts}
    return {**placement.content, "kind": placement.kind}


def _part(part: Part) -> dict[str, Any]:
    offsets = part.offsets.encode()
    return {"partition": part.partition, "offsets": offsets, "count": part.count, "digest": part.digest}


def _pair(range_: OffsetRange) -> list[int]:
    return [range_.from_, range_.until]


def decode_position(data: bytes) -> Position:
    """Raises LedgerUnreadable."""
    entry = _decode("position", data)
    assert isinstance(entry, Position)
    return entry


def decode_verified(data: bytes) -> Verified:
    """Raises LedgerUnreadable."""
    entry = _decode("verified", data)
    assert isinstance(entry, Verified)
    return entry


def decode_gap(data: bytes) -> Gap:
    """Raises LedgerUnreadable."""
    entry = _decode("gap", data)
    assert isinstance(entry, Gap)
    return entry


def decode_start(data: bytes) -> Start:
    """Raises LedgerUnreadable."""
    entry = _decode("start", data)
    assert isinstance(entry, Start)
    return entry


def decode_deleted(data: bytes) -> Deleted:
    """Raises LedgerUnreadable."""
    entry = _decode("deleted", data)
    assert isinstance(entry, Deleted)
    return entry


def decode_removed(data: bytes) -> Removed:
    """Raises LedgerUnreadable."""
    entry = _decode("removed", data)
    assert isinstance(entry, Removed)
    return entry


def decode_handled(data: bytes) -> Handled:
    """Raises LedgerUnreadable."""
    entry = _decode("handled", data)
    assert isinstance(entry, Handled)
    return entry


def decode_receipt(data: bytes) -> Receipt:
    """Raises LedgerUnreadable."""
    entry = _decode("receipt", data)
    assert isinstance(entry, Receipt)
    return entry


def _decode(kind: str, data: bytes) -> Entry:
    """The entry that a key of this ``kind`` holds, in any version. Raises LedgerUnreadable."""
    version, content = _load(kind, data)
    known = FORMATS[kind]
    if version > max(known):
        raise LedgerUnreadable(
            f"a ledger entry of kind {kind} has format {version}, this version reads up to {max(known)}", UPGRADE
        )
    try:
        return known[version].model_validate(content).value()
    except (ValueError, KeyError) as e:
        raise LedgerUnreadable(f"a ledger entry is malformed ({_reason(e)}): {data[:200]!r}", FOREIGN) from e


def _load(kind: str, data: bytes) -> tuple[int, dict[str, Any]]:
    """The version and the fields. Raises LedgerUnreadable."""
    try:
        content = json.loads(data)
        type_, version = content.pop("type"), content.pop("format")
        if type(version) is not int:
            raise TypeError(f"its format is {version!r}")
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError) as e:
        raise LedgerUnreadable(f"a ledger entry is not readable: {data[:200]!r}", FOREIGN) from e
    if type_ != kind:
        raise LedgerUnreadable(f"a ledger entry is a {type_!r} where a {kind} belongs", FOREIGN)
    return version, content


def _reason(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_context=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return f"no format {error}" if isinstance(error, KeyError) else str(error)
