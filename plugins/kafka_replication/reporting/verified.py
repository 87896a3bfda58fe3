"""The result of the command ``verify``: copies that were read back, and those that are gone or mixed with others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kafka_replication.documents import Pairs
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import Coverage
from kafka_replication.planning.plan import State
from kafka_replication.reporting.status import PartitionStatus
from kafka_replication.verification.verify import VerifyResult

# The states in which the target contradicts the ledger, or holds copies of another source than the present one,
# whatever was read back.
_CONTRADICTED = frozenset(
    {
        State.TARGET_RECREATED,
        State.TARGET_TRUNCATED,
        State.FOREIGN,
        State.LEDGER_LOST,
        State.SOURCE_RECREATED,
        State.TRUNCATED,
        State.CONTRADICTED,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedRow:
    """The offsets of one partition that were verified now, with so many records; ``watermark`` is null if it stays."""

    topic: str
    partition: int
    verified: Pairs
    records: int
    error: str | None
    remedy: str | None
    watermark: int | None

    def __str__(self) -> str:
        text = f"{self.topic}-{self.partition}: {self.verified} verified, {self.records} records"
        return f"{text}; FAILED {self.error}" if self.error else text


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyDocument:
    """``verify``: what was read back, and which copies a cluster contradicts."""

    replication: str
    ranges: list[VerifiedRow]


def verified_rows(
    results: Sequence[VerifyResult], moved: Mapping[PartitionKey, int], standing: Iterable[PartitionStatus]
) -> list[VerifiedRow]:
    """One row for each result, and one for each other partition in which a cluster contradicts the ledger."""
    contradicted = {row.key: row for row in standing if row.plan.state in _CONTRADICTED or row.plan.missed}
    read_back = {result.key for result in results}
    others = [VerifyResult(key=key, verified=Coverage()) for key in contradicted if key not in read_back]
    rows = list[VerifiedRow]()
    for result in (*results, *others):
        error, remedy = result.error, result.remedy or None
        if not error and (row := contradicted.get(result.key)):
            error, remedy = row.error, row.remedy
        rows.append(
            VerifiedRow(
                topic=result.key.source.topic,
                partition=result.key.source.partition,
                verified=result.verified,
                records=result.records,
                error=error,
                remedy=remedy,
                watermark=moved.get(result.key),
            )
        )
    return rows
