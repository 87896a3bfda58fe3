"""Error ids are an interface: programs and tests hang on them, whatever the words say."""

from __future__ import annotations

import kafka_replication.model.errors as module
from kafka_replication.model.errors import ReplicationError

IDS = {
    "replication-error",
    "bad-input",
    "config-error",
    "connection-missing",
    "refused",
    "not-admitted",
    "not-authenticated",
    "tls-failed",
    "not-authorized",
    "preflight-failed",
    "record-refused",
    "too-many-failed",
    "gap-found",
    "ledger-unreadable",
    "plan-unreadable",
    "foreign-writer",
    "target-lost",
    "verification-failed",
    "receipts-expired",
    "stale-writer",
    "out-of-time",
    "no-progress",
    "busy",
    "fenced",
    "unexpected",
    "not-delivered",
    "unreachable",
    "attempts-exhausted",
    "name-not-resolved",
    "not-ready",
    "session-ended",
    "stalled",
}


def test_each_error_has_an_id_of_its_own_that_stays() -> None:
    """An id that is missing was renamed or taken away, which breaks its users; a new one comes into the list."""
    errors = [each for each in vars(module).values() if isinstance(each, type) and issubclass(each, ReplicationError)]
    ids = [error.id for error in errors]
    assert len(set(ids)) == len(ids)
    assert set(ids) == IDS


def test_an_error_of_another_package_has_the_id_of_its_base() -> None:
    class FolderFull(module.NotReady): ...

    assert FolderFull("full").id == "not-ready"
