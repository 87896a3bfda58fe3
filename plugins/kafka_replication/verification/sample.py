"""A random part of the chunks of a partition, which is the same part for the same seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import xxhash

from kafka_replication.ledger.entries import Proof, Receipt
from kafka_replication.model.errors import BadInput
from kafka_replication.model.keys import PartitionKey
from kafka_replication.verification.chunks import in_target_order

MOST_SEED = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Sample:
    """At most so many ``chunks`` of each partition; the same ``seed`` gives the same ones.

    Raises ValueError for less than one.
    """

    chunks: int
    seed: int

    def __post_init__(self) -> None:
        if self.chunks < 1:
            raise ValueError(f"a sample of {self.chunks} chunks is none")

    def of(self, key: PartitionKey, receipts: Sequence[Receipt]) -> list[Receipt]:
        """The chunks of the sample, in source order. A chunk that is added later moves at most one other out.

        Chunks without transactions are judged by what lies between them, so these are neighbours on the target.
        """

        def draw(receipt: Receipt) -> int:
            return xxhash.xxh3_64_intdigest(f"{self.seed} {key} {receipt.generation} {receipt.range.from_}".encode())

        alone = sorted((one for one in receipts if one.proof is not Proof.BY_WINDOW), key=draw)[: self.chunks]
        row = in_target_order(one for one in receipts if one.proof is Proof.BY_WINDOW)
        first = min(range(len(row)), key=lambda index: draw(row[index]), default=0)
        first = max(0, min(first, len(row) - self.chunks))
        return sorted([*alone, *row[first : first + self.chunks]], key=lambda receipt: receipt.range)

    def __str__(self) -> str:
        return f"SAMPLE of at most {self.chunks} chunks of each partition, seed {self.seed}"


def drawn(chunks: int | None, seed: int | None) -> Sample | None:
    """The sample that a person asks for, with a new seed if they give none; None: everything. Raises BadInput."""
    if chunks is None:
        if seed is not None:
            raise BadInput(f"a seed ({seed}) without a sample", "say how many chunks of each partition to look at")
        return None
    return Sample(chunks, random.randrange(MOST_SEED) if seed is None else seed)
