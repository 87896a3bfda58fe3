"""The digest kinds that this version can compute. A receipt names the kind of its digests.

A kind never changes, because stored receipts name it. Another way to compute a digest gets another name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from kafka_replication.ledger.entries import UPGRADE, Receipt
from kafka_replication.model.errors import LedgerUnreadable
from kafka_replication.verification.digest import DIGEST_KIND, Fingerprint, Headers

Content = bytes | None  # of a key or a value; None is null


class Digest(Protocol):
    """The digest of the records that were added, in their order. Equal digests of one kind mean equal records."""

    count: int
    bytes: int

    def add(self, timestamp: int, key: Content, value: Content, headers: Headers | None) -> None:
        """Add one record; ``timestamp`` in ms since the epoch, -1 where the record has none."""

    def hexdigest(self) -> str: ...


DIGESTS: Mapping[str, Callable[[], Digest]] = {DIGEST_KIND: Fingerprint}


def digest_for(receipt: Receipt) -> Callable[[], Digest]:
    """Return the constructor of digests of the receipt's kind.

    Raises LedgerUnreadable for a kind that this version does not know: the copy may be correct, but this version cannot
    check it.
    """
    make = DIGESTS.get(receipt.digest_kind)
    if make is None:
        raise LedgerUnreadable(
            f"the receipt of source offsets {receipt.range} has the digest kind {receipt.digest_kind!r}, which this"
            f" version does not know (it knows {', '.join(sorted(DIGESTS))})",
            UPGRADE,
        )
    return make
