"""The digest kinds that this version can compute. A receipt names the kind of its digests.

A kind never changes, because stored receipts name it. Another way to compute a digest gets another name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kafka_replication.ledger.entries import Receipt
from kafka_replication.ledger.placement import UPGRADE, Part
from kafka_replication.model.errors import LedgerUnreadable
from kafka_replication.verification.digest import BATCH_DIGEST_KIND, DIGEST_KIND, BatchDigest, Fingerprint

Digest = Fingerprint | BatchDigest
RECORD_DIGESTS: Mapping[str, type[Fingerprint]] = {DIGEST_KIND: Fingerprint}
DIGESTS: Mapping[str, Callable[[], Digest]] = {**RECORD_DIGESTS, BATCH_DIGEST_KIND: BatchDigest}


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


def equals(digest: Digest, copy: Receipt | Part) -> bool:
    """True if the records that were added are those of this chunk, or of this part of one."""
    return (digest.count, digest.hexdigest()) == (copy.count, copy.digest)


def record_digest_for(receipt: Receipt) -> type[Fingerprint]:
    """The same where only records are at hand. Raises LedgerUnreadable, too, for a digest of stored batches."""
    digest_for(receipt)
    if (make := RECORD_DIGESTS.get(receipt.digest_kind)) is None:
        raise LedgerUnreadable(
            f"the receipt of source offsets {receipt.range} has a digest of whole batches, which single records do not"
            " have",
            "compare source and target (kafka-replication audit)",
        )
    return make
