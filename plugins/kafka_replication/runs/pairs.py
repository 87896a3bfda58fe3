"""One partition of both directions: how far it is turned around."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kafka_replication.ledger.account import Account
from kafka_replication.ledger.entries import Returned
from kafka_replication.model.offsets import Coverage, PartitionKey
from kafka_replication.planning.turning import is_behind, nothing_copied_since, surplus_of

FAILBACK: Final = "failback"  # why the other direction is sealed


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One partition: of the first direction, and of the ``other`` one; None where it has copied nothing yet."""

    key: PartitionKey
    other_key: PartitionKey
    account: Account | None
    other: Account | None

    @property
    def is_done(self) -> bool:
        """True if the first direction goes on behind the seal of the other one."""
        account, other = self.account, self.other
        return account is not None and not account.position.sealed and other is not None and is_behind(account, other)

    @property
    def is_open(self) -> bool:
        """True if the other direction was opened behind the seal of the first one, or by itself."""
        return self.other is not None and (self.account is None or is_behind(self.other, self.account))

    @property
    def is_back(self) -> bool:
        """True if the other direction has copied everything, and was sealed."""
        seal = self.other.position.sealed if self.is_open and self.other else None
        return seal is not None and seal.why == FAILBACK

    @property
    def begun(self) -> Returned | None:
        """The turn behind the present seal, if the other direction has copied something since."""
        other = self.other if self.is_open and self.account else None
        return other.turn if other and not nothing_copied_since(other) else None

    def surplus(self, source_end: int) -> Coverage:
        """The source offsets that were never copied, without those that came back."""
        if self.account is None:
            return Coverage()
        return turn.surplus if (turn := self.begun) else surplus_of(self.account, source_end)

    @property
    def sealed_at(self) -> int:
        """The end of the target when the first direction was sealed, or else of what it has copied."""
        position = self.account.position if self.account else None
        return 0 if position is None else position.sealed.target_until if position.sealed else position.target_end
