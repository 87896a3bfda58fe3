"""Which records of one range are set aside instead of copied: quarantined or skipped, as the policy says."""

from __future__ import annotations

from dataclasses import dataclass, field

from kafka_replication.config.failures import Failures, Policy
from kafka_replication.model.errors import TooManyFailed
from kafka_replication.model.failures import Failure

MOST_IN_CHUNK = 500  # so that a receipt, which names each of them, stays far below a megabyte


@dataclass(slots=True, kw_only=True)
class SetAside:
    """What one range may set aside, what it has learned, and what it has set aside so far.

    ``known`` has what a refusal taught: these records are set aside when they are read again. While ``searching``, a
    record was refused that is not known yet.
    """

    policy: Failures = field(default_factory=Failures)
    topic: str = ""  # the quarantine topic
    generation: int = 1
    most: int = 0  # records of this generation that may be set aside in all
    so_far: int = 0  # how many are, as the ledger's position says
    known: dict[int, Failure] = field(default_factory=dict)
    searching: bool = False

    @property
    def anything(self) -> bool:
        """Whether there is a policy by which a record can be set aside."""
        return self.policy.policies != {"fail"}

    def action(self, failure: Failure) -> Policy:
        """What to do with the record."""
        return self.policy.of(failure.kind)

    def learn(self, failure: Failure) -> bool:
        """Note what a refusal taught. False if the policy is to fail, or if that was known: then it does not help."""
        if self.action(failure) == "fail" or failure.offset in self.known:
            return False
        self.known[failure.offset] = failure
        self.searching = False
        return True

    def check(self, in_chunk: int, offset: int, what: str) -> None:
        """Raise TooManyFailed if this record may not be set aside, after so many of the open chunk."""
        if self.so_far + in_chunk >= self.most:
            raise TooManyFailed(
                f"{what}; it is one more than a run may set aside of a partition (failures.limit)",
                "find out why so many records cannot be copied, and remove the cause; or raise failures.limit. Records"
                " that were set aside stay so: kafka-replication failed list",
                offset,
            )

    def committed(self, so_far: int, until: int) -> None:
        """A chunk was committed, and so many are set aside now. What is known below ``until`` is not needed."""
        self.so_far = so_far
        if self.known:
            self.known = {offset: failure for offset, failure in self.known.items() if offset >= until}
