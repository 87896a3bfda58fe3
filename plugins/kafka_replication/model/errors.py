"""Every error this package raises on purpose.

    ReplicationError
    |-- BadInput              the user's file, argument or connection is wrong   exit code 2
    |   |-- ConfigError       a YAML file: names file, line and key
    |   `-- ConnectionMissing an Airflow connection is absent or unusable
    |-- Refused               going on could lose or double records; retrying changes nothing
    |   |-- NotAdmitted         a cluster does not let this client in
    |   |   |-- NotAuthenticated  the login is refused
    |   |   `-- TlsFailed         TLS does not come about: a certificate, a name, or one side without TLS
    |   |-- NotAuthorized       a right is missing
    |   |-- PreflightFailed   the clusters or topics do not fit the replication
    |   |-- RecordRefused     the target does not take one record
    |   |-- TooManyFailed     more records of a partition would be set aside than failures.limit allows
    |   |-- GapFound          source offsets can no longer be read
    |   |-- LedgerUnreadable  an entry this version cannot read
    |   |-- PlanUnreadable    a stored plan this version cannot read
    |   |-- ForeignWriter     the target holds records that the ledger does not know
    |   |   `-- TargetLost    it lost records of ours, or does not show them     retriable
    |   |-- VerificationFailed  the copy differs from its receipt
    |   |   `-- ReceiptsExpired  the receipts of an unverified range were deleted by age
    |   `-- StaleWriter       another run moved the stored watermark
    |-- OutOfTime             the run's time is used up; the next run has its own
    |-- NoProgress            a range did not move for too long; the next run takes it on    retriable
    |-- Busy                  another run holds the lease                        retriable
    |-- Fenced                a newer copier of the same range is at work        not retried in place
    |-- Unexpected            Kafka's answer means nothing to this package
    |-- NotDelivered          an alert did not reach its address                 retriable
    `-- Unreachable           a cluster does not answer, or a wait ran out       retriable
        |-- AttemptsExhausted   500 attempts in a row got no further
        |-- NotResolved       the name service does not know a host name
        |-- NotReady          a broker answers that it cannot do this now
        |-- SessionEnded      the producer can no longer be used; a new session goes on
        `-- Stalled           nothing arrived within the stall clock

``retriable`` belongs to the type: it is true if the same call may succeed later although nobody changed anything.
``id`` names the type for programs: ``--json`` prints it as ``error_id``. It stays the same when the wording changes. It
is the name of the class with dashes; a class that is renamed keeps the id that it had. A class of another module has
the id of its base.
``exit_code`` is that of a command that ends with the error.

Collects the mistakes in several values of one request, so that one error names them all.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Self, TypeVar

from kafka_replication.model.rights import ACLS, UNKNOWN_PRINCIPAL, ClusterName, Right

_EXPLAINED = Path(__file__).parents[3] / "docs" / "errors.md"


class ReplicationError(Exception):
    """An error that says what happened to which thing and why (``what``), and what to do about it (``remedy``)."""

    id: ClassVar[str] = "replication-error"
    retriable: ClassVar[bool] = False
    exit_code: ClassVar[int] = 1
    of_store = False  # whether the watermark store failed, and no cluster

    def __init_subclass__(cls) -> None:
        if cls.__module__ == __name__ and "id" not in vars(cls):
            cls.id = re.sub("(?<=[a-z])(?=[A-Z])", "-", cls.__name__).lower()

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(what, remedy)
        self.what = what
        self.remedy = remedy

    @property
    def see(self) -> str:
        """The part of the documentation about errors of this kind. A wheel does not contain it."""
        if _EXPLAINED.is_file():
            return f"docs/errors.md#{self.id}"
        return f"{self.id} in docs/errors.md of the source of kafka-replication"

    def __str__(self) -> str:
        return f"{self.what}. Remedy: {self.remedy}" if self.remedy else self.what


class BadInput(ReplicationError):
    """The user's input is wrong; nothing was started."""

    exit_code = 2


class ConfigError(BadInput):
    """A replication file is wrong; ``what`` names the file, the line and the key."""


class ConnectionMissing(BadInput):
    """A connection named by a replication file does not exist or cannot be used."""


class Refused(ReplicationError):
    """Going on could lose or double records."""


class NotAdmitted(Refused):
    """A cluster does not let this client in; the connection's settings or the brokers' have to be corrected."""


class NotAuthenticated(NotAdmitted):
    """The cluster refuses the login."""


class TlsFailed(NotAdmitted):
    """The TLS connection to the cluster fails, or only one side speaks TLS."""


class NotAuthorized(Refused):
    """The cluster does not allow an operation: a right is missing, or a rule denies it."""

    @classmethod
    def of(cls, right: Right, cluster: ClusterName, principal: str = UNKNOWN_PRINCIPAL, doing: str = "") -> Self:
        """The error that names the right, and the command that grants it. ``doing`` is what needs the right."""
        what = f"{cluster}: {right} is missing"
        remedy = (  # brokers do not say whether it is missing or denied
            f"{right.command(cluster.address, principal)}; if it is granted already, a rule that denies it has to be"
            f" removed: {ACLS.format(cluster.address)} --list"
        )
        return cls(f"{doing}: {what}" if doing else what, remedy)


class PreflightFailed(Refused):
    """The clusters or topics do not fit the replication."""


class RecordRefused(Refused):
    """The target does not take one record; ``what`` names topic, partition, offset, size and limit."""


class TooManyFailed(Refused):
    """One run would quarantine or skip more records than ``failures.limit`` allows for each source partition."""

    def __init__(self, what: str, remedy: str = "", offset: int = 0) -> None:
        super().__init__(what, remedy)
        self.offset = offset  # of the first one that is not set aside


class GapFound(Refused):
    """Offsets between the position and the log start offset can no longer be read."""


class LedgerUnreadable(Refused):
    """A ledger entry is malformed or of a newer format."""


class PlanUnreadable(Refused):
    """The plan that is stored with a run is malformed or of a newer format."""


class ForeignWriter(Refused):
    """The target partition has records that the ledger does not know, or lacks records that it knows."""


class TargetLost(ForeignWriter):
    """The target no longer has records of ours, or does not show them. The next run mends it, if it can."""

    retriable = True


class VerificationFailed(Refused):
    """The records that were read back differ from their receipt."""


class ReceiptsExpired(VerificationFailed):
    """Receipts were deleted by age before their ranges were verified."""


class StaleWriter(Refused):
    """Another run moved the stored watermark after it was read."""


class OutOfTime(ReplicationError):
    """The run's time is used up. Committed chunks stay, and the next run continues after them."""


class NoProgress(ReplicationError):
    """A range was given up, because it did not move for ten minutes. The next run tries again."""

    retriable = True


class Busy(ReplicationError):
    """Another run of the same replication holds the lease."""

    retriable = True

    def __init__(self, what: str, remedy: str = "", *, owner: str = "", holder: str | None = None) -> None:
        """``owner`` and ``holder`` are those of the other lease; empty if they are not known."""
        super().__init__(what, remedy)
        self.owner, self.holder = owner, holder


class Fenced(ReplicationError):
    """A newer copier took over, or the transaction outlived its time-out: Kafka does not tell them apart."""


class Unexpected(ReplicationError):
    """Kafka's answer fits no request of this package, or is newer than it. It is not retried."""


class NotDelivered(ReplicationError):
    """An alert did not reach an address."""

    retriable = True


class Unreachable(ReplicationError):
    """A cluster does not answer within the deadline."""

    retriable = True
    outage = False  # of the store: it is away, so that the same call may soon succeed


class AttemptsExhausted(Unreachable):
    """So many attempts in a row got no further. The next run tries again."""

    @classmethod
    def of(cls, doing: str, attempts: int, last: ReplicationError) -> Self:
        """The error for so many attempts, of which the last one ended with ``last``."""
        return cls(
            f"{doing}: {attempts} attempts in a row failed, so this run gives up; the last error was: {last.what}",
            last.remedy or "run again",
        )


class NotResolved(Unreachable):
    """The name service does not know a host name. It is raised at once; the next run may find the name."""

    id = "name-not-resolved"


class NotReady(Unreachable):
    """A broker answers that it cannot do this now: no leader, too few replicas, loading, over a quota."""


class SessionEnded(Unreachable):
    """The producer's session is over, and the outcome of its transaction unknown. A new session reads the ledger."""


class Stalled(Unreachable):
    """A wait made no progress within its stall clock."""


Value = TypeVar("Value")
Other = TypeVar("Other")


class Mistakes:
    """The mistakes in the values that were read so far."""

    def __init__(self) -> None:
        self._found: list[BadInput] = []

    def of(self, read: Callable[[], Value], instead: Other) -> Value | Other:
        """The result of ``read``; ``instead`` if it raises BadInput. The error is kept."""
        try:
            return read()
        except BadInput as e:
            self._found.append(e)
            return instead

    def raise_all(self) -> None:
        """Raise BadInput with all mistakes and each remedy once, if there are any."""
        if self._found:
            remedies = dict.fromkeys(e.remedy for e in self._found if e.remedy)
            raise BadInput("; ".join(e.what for e in self._found), "; ".join(remedies)) from self._found[0]
