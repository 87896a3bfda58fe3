"""Entries of one partition that cannot all be true: somebody changed the ledger, or a part of it is older. Pure.

Each contradiction is a text that names source offsets. Copying from such a position could double or lose records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kafka_replication.ledger.entries import POSITIONS, Handled, Receipt
from kafka_replication.ledger.placement import UnknownPlacement, ends_of
from kafka_replication.ledger.receipts import Receipts, committed
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import Coverage, OffsetRange, TopicPartition


def of_entries(key: PartitionKey, view: LedgerView) -> list[str]:
    """Contradictions between position, verified coverage and gaps of a known partition."""
    return [f"{_where(key)}: {text}" for text in _of_entries(key, view)]


def _of_entries(key: PartitionKey, view: LedgerView) -> Iterator[str]:
    position = view.positions[key]
    next_, coverage = position.next_offset, position.coverage
    if next_ < position.start:
        yield f"the position says that it started at {position.start}, above its next offset {next_}"
        return
    if coverage.contiguous_end(next_) != next_:
        yield f"the position's next offset is {next_}, but its coverage has {coverage.contiguous_end(next_) - 1}, too"
    passed = coverage.union(view.given_back(key, position.generation))
    if holes := Coverage(passed.missing_from(OffsetRange(position.start, next_))):
        yield f"the position's next offset is {next_}, but its coverage lacks {holes}"
    if more := view.read_back(key, position.generation).subtract(coverage):
        yield f"{more} are called verified, but the position says that they were never copied"
    if more := view.given_up(key, position.generation).subtract(passed):
        yield f"the loss of {more} was approved, but the position does not pass them"


def of_receipts(key: PartitionKey, view: LedgerView, receipts: Receipts) -> list[str]:
    """Contradictions between these receipts and the position. ``receipts`` has at least the unverified ones."""
    return [f"{_where(key)}: {text}" for text in _of_receipts(key, view, receipts)]


def _of_receipts(key: PartitionKey, view: LedgerView, receipts: Receipts) -> Iterator[str]:
    position = view.positions[key]
    same_topics = (receipt for receipt in receipts.of(key, position.generation) if receipt.ids == position.ids)
    written = committed(same_topics, position.coverage)
    proven = Coverage.of(receipt.range for receipt in written)
    if more := proven.subtract(position.coverage):
        yield f"receipts say that {more} were copied, but the position says that they were not"
    unproven = view.pending(key).subtract(view.gone(key)).subtract(proven)
    if unproven and not receipts.incomplete(key):
        yield f"the position says that {unproven} were copied, but there is no receipt"
    ends = position.ends(key.source.partition)
    for number, end in sorted(target_ends(written).items()):
        if end > ends.get(number, 0):
            at = TopicPartition(key.target_topic, number)
            yield f"a receipt ends at offset {end} of {at}, but the position says {ends.get(number, 0)}"


def target_ends(entries: Iterable[Receipt | Handled]) -> dict[int, int]:
    """One past the highest offset of what these entries placed in each target partition."""
    readable = (entry for entry in entries if not isinstance(entry.placement, UnknownPlacement))
    return ends_of(part for entry in readable for part in entry.parts)


def _where(key: PartitionKey) -> str:
    return f"{key.source} (entries in {POSITIONS}-{key.ledger_partition})"
