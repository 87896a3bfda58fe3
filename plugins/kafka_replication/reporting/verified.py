"""The result of the command ``verify``: copies that were read back, and those that are gone or mixed with others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kafka_replication import documents
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
    """One partition: the offsets that were verified now with the number of records, or the reason why they are not."""

    key: PartitionKey
    verified: Coverage
    records: int
    watermark: int | None
    error: str | None
    remedy: str

    def as_json(self) -> documents.VerifiedRow:
        return {
            "topic": self.key.source.topic,
            "partition": self.key.source.partition,
            "verified": self.verified.encode(),
            "records": self.records,
            "error": self.error,
            "remedy": self.remedy or None,
            "watermark": self.watermark,
        }

    def __str__(self) -> str:
        text = f"{self.key.source}: {self.verified} verified, {self.records} records"
        return f"{text}; FAILED {self.error}" if self.error else text


def verified_rows(
    results: Sequence[VerifyResult], moved: Mapping[PartitionKey, int], standing: Iterable[PartitionStatus]
) -> list[VerifiedRow]:
    """One row for each result, and one for each other partition in which a cluster contradicts the ledger."""
    contradicted = {row.plan.key: row for row in standing if row.plan.state in _CONTRADICTED or row.plan.missed}
    return [*_read_back(results, moved, contradicted), *_others(results, moved, contradicted)]


def _read_back(
    results: Sequence[VerifyResult],
    moved: Mapping[PartitionKey, int],
    contradicted: Mapping[PartitionKey, PartitionStatus],
) -> Iterator[VerifiedRow]:
    for result in results:
        row = contradicted.get(result.key)
        error, remedy = result.error, result.remedy
        if row is not None and not error:
            error, remedy = row.problem, row.plan.remedy
        yield VerifiedRow(
            key=result.key,
            verified=result.verified,
            records=result.records,
            watermark=moved.get(result.key),
            error=error,
            remedy=remedy,
        )


def _others(
    results: Sequence[VerifyResult],
    moved: Mapping[PartitionKey, int],
    contradicted: Mapping[PartitionKey, PartitionStatus],
) -> Iterator[VerifiedRow]:
    read_back = {result.key for result in results}
    for key, row in contradicted.items():
        if key not in read_back:
            yield VerifiedRow(
                key=key,
                verified=Coverage(),
                records=0,
                watermark=moved.get(key),
                error=row.problem,
                remedy=row.plan.remedy,
            )
