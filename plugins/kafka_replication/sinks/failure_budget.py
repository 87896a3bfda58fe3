"""The records of one range that are set aside instead of copied: quarantined or skipped, as the policy says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from kafka_replication.config.sections.failures import Failures, Policy
from kafka_replication.model.errors import TooManyFailed
from kafka_replication.model.failures import Failure

MOST_IN_CHUNK = 500  # so that a receipt, which names each of them, stays far below a megabyte


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAside:
    """The records of a range that one session may set aside, and those that the sessions before it have learned of.

    ``known`` has what a refusal taught: these records are set aside when they are read again. While ``searching``, a
    record was refused that is not known yet. ``queue`` is the size in bytes of the largest record that was too large
    for the queue of a client.
    """

    policy: Failures = field(default_factory=Failures)
    topic: str = ""  # the quarantine topic
    generation: int = 1
    most: int = 0  # records of this generation that may be set aside in all
    known: Mapping[int, Failure] = field(default_factory=dict)  # by source offset
    searching: bool = False
    queue: int = 0

    @property
    def anything(self) -> bool:
        """True if there is a policy by which a record can be set aside."""
        return self.policy.policies != {"fail"}

    def action(self, failure: Failure) -> Policy:
        """The policy for the record."""
        return self.policy.of(failure.kind)

    def learning(self, failures: Iterable[Failure], queue: int = 0) -> SetAside:
        """With what a refusal taught. Equal to this if the policy is to fail, or if that was known: then it does not
        help.
        """
        if queue > self.queue:
            return replace(self, queue=queue)
        new = {one.offset: one for one in failures if self.action(one) != "fail" and one.offset not in self.known}
        return replace(self, known={**self.known, **new}, searching=False) if new else self

    def from_(self, offset: int) -> SetAside:
        """Without what is known below this offset, which is not read again."""
        if not self.known:
            return self
        return replace(self, known={number: failure for number, failure in self.known.items() if number >= offset})

    def check(self, so_far: int, offset: int, what: str) -> None:
        """Raise TooManyFailed if this record may not be set aside, after so many of this generation."""
        if so_far >= self.most:
            raise TooManyFailed(
                f"{what}; it is one more than a run may set aside of each source partition (failures.limit)",
                "find out why so many records cannot be copied, and remove the cause; or raise failures.limit. Records"
                " that were set aside stay so: kafka-replication failed list",
                offset,
            )
