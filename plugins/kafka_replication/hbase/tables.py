"""Makes tables, and asks about them: whether they are still the same ones, and whether they can be written to.

Writes rows, many in one call. The gateway has one answer about all of them: if it is an error, some are written, and
all are sent again.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kafka_replication.hbase.client import SEE, Answer, Client, thrift
from kafka_replication.hbase.rows import FAMILY, ORIGIN, partition_begins, put
from kafka_replication.model.choices import RECORDS, Failure, FailureKind, Shape
from kafka_replication.model.errors import (
    NotAuthorized,
    NotReady,
    Refused,
    ReplicationError,
    Stalled,
    Unexpected,
    Unreachable,
)
from kafka_replication.model.harmless import harmless
from kafka_replication.model.trouble import Trouble
from kafka_replication.targets.record_store import Item, Outcome, Resend

# A table of HBase has no id, so that one that was created again would be taken for the one before: it gets ours.
ID: Final = b"kafka-replication.id"
PARTITIONS: Final = b"kafka-replication.partitions"
SHAPE: Final = b"kafka-replication.shape"
FOREVER: Final = 2**31 - 1  # of a family's TTL
MOST_REGIONS: Final = 32  # that a new table begins with
READ_ONLY: Final = b"READONLY"
FAMILY_SETTING, TABLE_SETTING = "family.", "table."  # begin the names of settings in target_topics.config


class Tables:
    """Asks about tables, also while copying."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def described(self, name: str) -> Any | None:
        """The descriptor of the table; None if there is none."""
        try:
            return self._client.call("getTableDescriptor", named(name))
        except Answer as answer:
            if self.exists(name):
                raise self._client_error(answer) from answer
            return None

    def exists(self, name: str) -> bool:
        return bool(self._asked("tableExists", named(name)))

    def is_enabled(self, name: str) -> bool:
        return bool(self._asked("isTableEnabled", named(name)))

    def _asked(self, method: str, *args: Any) -> Any:
        try:
            return self._client.call(method, *args)
        except Answer as answer:
            raise self._client_error(answer) from answer

    def _client_error(self, answer: Answer) -> ReplicationError:
        return NotReady(answer.what, "check the cluster's health; run again")

    def judged(self, name: str, answer: Answer) -> ReplicationError:
        """The error of an answer about a table, which often has no more than the table's name."""
        if not self.exists(name):
            return Refused(f"{name} on the target was deleted", "plan again")
        if not self.is_enabled(name):
            return NotReady(f"{name} on the target is disabled", f"enable '{name}' in HBase's shell; then it goes on")
        if "NoSuchColumnFamily" in answer.reason:
            return Refused(f"{name} on the target lacks a family that is written to", _add_family(name))
        return self._client_error(answer)

    def check_writing(self, name: str, family: bytes = FAMILY, column: bytes = ORIGIN) -> None:
        """Ask for a row under a condition that never holds: HBase looks at the rights before, and changes nothing.

        Raises Refused for a missing right, and what `judged` returns.
        """
        row, never = b"check", uuid.uuid4().bytes
        request = put(row, family, {column: never}, 1)
        try:
            self._client.call("checkAndPut", name.encode(), row, family, column, never, request)
        except NotAuthorized as error:
            remedy = f"in HBase's shell, for the user that the answer names: grant 'USER', 'RWC', '{name}'; {SEE}"
            raise Refused(error.what, remedy) from error
        except Answer as answer:
            raise self.judged(name, answer) from answer

    def create(self, name: str, families: Mapping[bytes, Mapping[str, str]], **more: Any) -> None:
        """Create the table unless it exists, and wait until it can be used. Raises Refused."""
        types = thrift()
        columns = [
            types.TColumnFamilyDescriptor(name=family, attributes=_encoded({"VERSIONS": "1", **settings}))
            for family, settings in families.items()
        ]
        splits = more.pop("splits", None)
        descriptor = types.TTableDescriptor(tableName=named(name), columns=columns, **more)
        try:
            self._client.call("createTable", descriptor, splits, seconds=CREATE_SECONDS)
        except Answer as answer:
            if not self.exists(name):
                raise Refused(answer.what, f"correct target_topics; {SEE}") from answer

    def create_topic(self, name: str, partitions: int, config: Mapping[str, str], shape: Shape = RECORDS) -> None:
        """Create the table of a topic, with a region for each partition at first, if row keys begin with these."""
        families = {FAMILY: _beginning(FAMILY_SETTING, config)}
        if problem := family_problem(name, families[FAMILY]):
            raise Refused(problem.what, "correct target_topics.config")
        about = {ID: uuid.uuid4().hex.encode(), PARTITIONS: b"%d" % partitions}
        if shape != RECORDS:
            about[SHAPE] = shape.encode()
        regions = min(partitions, MOST_REGIONS) if shape == RECORDS else 1
        splits = [partition_begins(number * partitions // regions) for number in range(1, regions)]
        attributes = {**_encoded(_beginning(TABLE_SETTING, config)), **about}
        self.create(name, families, attributes=attributes, splits=splits or None)

    def set_partitions(self, name: str, partitions: int) -> None:
        """Raises Refused if there is no such table."""
        there = self.described(name)
        if there is None:
            raise Refused(f"there is no table {name} on the target", "run again, which creates it")
        there.attributes[PARTITIONS] = b"%d" % partitions
        try:
            self._client.call("modifyTable", there, seconds=CREATE_SECONDS)
        except Answer as answer:
            raise self.judged(name, answer) from answer


CREATE_SECONDS: Final = 120.0


def named(name: str) -> Any:
    return thrift().TTableName(qualifier=name.encode())


def id_of(there: Any) -> str | None:
    found = (there.attributes or {}).get(ID)
    return found.decode() if found else None


def partitions_of(there: Any) -> int:
    return int((there.attributes or {}).get(PARTITIONS, b"1"))


def problem_of(name: str, there: Any, shape: Shape = RECORDS) -> Trouble | None:
    """The reason why no record may be written to a table as it is; None if it may be."""
    families = {family.name: family for family in there.columns or ()}
    if FAMILY not in families:
        return Trouble("error", name, f"{name} on the target has no family {FAMILY.decode()!r}", _add_family(name))
    attributes = families[FAMILY].attributes or {}
    decoded = {name.decode(): value.decode(errors="replace") for name, value in attributes.items()}
    if problem := family_problem(name, decoded):
        return problem
    if id_of(there) is None:
        command = f"alter '{name}', METADATA => {{'{ID.decode()}' => '{uuid.uuid4().hex}'}}"
        return Trouble(
            "error",
            name,
            f"{name} on the target has no {ID.decode()}, by which one that is created again is told from it",
            f"in HBase's shell, before anything is written there: {command}",
        )
    if (made := (there.attributes or {}).get(SHAPE, RECORDS.encode()).decode()) != shape:
        command = f"alter '{name}', METADATA => {{'{SHAPE.decode()}' => '{shape}'}}"
        return Trouble(
            "error",
            name,
            f"{name} was made for 'shape: {made}', not for 'shape: {shape}': rows of both cannot be told apart",
            f"write to another table (topics.rename); one of your own, which has no rows yet, can be prepared:"
            f" {command}",
        )
    if (there.attributes or {}).get(READ_ONLY, b"false").lower() == b"true":
        return Trouble("error", name, f"{name} on the target is read only", f"alter '{name}', READONLY => false")
    return None


def family_problem(name: str, settings: Mapping[str, str]) -> Trouble | None:
    """The reason why a family with these settings would hide what is written."""
    ttl = settings.get("TTL", str(FOREVER))
    if ttl not in (str(FOREVER), "FOREVER"):
        return Trouble(
            "error",
            name,
            f"the family {FAMILY.decode()} of {name} has a TTL ({ttl}): it would hide records, because the timestamps"
            " of their cells are numbers that we count, not times",
            f"alter '{name}', NAME => '{FAMILY.decode()}', TTL => 'FOREVER'; delete old rows by another program",
        )
    return None


def _add_family(name: str) -> str:
    return f"in HBase's shell: alter '{name}', NAME => '{FAMILY.decode()}', VERSIONS => 1"


def _beginning(prefix: str, config: Mapping[str, str]) -> dict[str, str]:
    return {name.removeprefix(prefix): value for name, value in config.items() if name.startswith(prefix)}


def _encoded(settings: Mapping[str, str]) -> dict[bytes, bytes]:
    return {name.encode(): value.encode() for name, value in settings.items()}


TOO_LARGE = ("exceeds limit of", "KeyValue size too large")
# What a cell may have by default. The gateway's own client refuses more without a reason that it would tell.
CELL_BYTES = 10 << 20


@dataclass(slots=True, kw_only=True)
class Puts:
    """Writes rows of one table. An answer may take as long as a copy may stall: the gateway repeats by itself what
    regions refuse for now. A call without an answer is sent again, and the gateway may still carry out the first one,
    at any later time.
    """

    client: Client
    table: str
    resend: Resend

    def write(self, items: Sequence[Item]) -> tuple[Failure, ...]:
        """Write them all. Returns the refused ones. Raises Stalled or NotReady, which name what was waited for, and
        Refused if there is no table any more.
        """
        return self.resend.write(self.table, items, self._once)

    def _once(self, batch: Sequence[Item]) -> Outcome:
        try:
            puts = [item.request for item in batch]
            self.client.call("putMultiple", self.table.encode(), puts, seconds=self.resend.stall_seconds, repeats=False)
        except Answer as answer:
            return self._judged(batch, answer)
        except Unreachable as error:
            self.resend.unanswered = True
            return Outcome(tuple(batch), error.what)
        return Outcome()

    def _judged(self, batch: Sequence[Item], answer: Answer) -> Outcome:
        too_large = any(text in answer.reason for text in TOO_LARGE)
        if too_large or (answer.inside and any(one.size > CELL_BYTES for one in batch)):
            if len(batch) > 1:
                return self._by_halves(batch)
            told = harmless(answer.reason)
            what = f"{self.table} refuses it: its {batch[0].size} bytes are too many for a cell: {told}"
            return Outcome(refused=(Failure(batch[0].offset, FailureKind.TOO_LARGE, what, "cell_too_large"),))
        if answer.inside:
            raise Unexpected(answer.what, "see the log of the Thrift2 gateway") from answer
        error = Tables(self.client).judged(self.table, answer)
        if isinstance(error, (NotReady, Stalled)):
            return Outcome(tuple(batch), error.what, blocked="disabled" in error.what)
        raise error from answer

    def _by_halves(self, batch: Sequence[Item]) -> Outcome:
        """The same rows in two calls, at once: one of them is too large, and keeps the others from being written."""
        middle = len(batch) // 2
        parts = [self._once(batch[:middle]), self._once(batch[middle:])]
        return Outcome(
            tuple(one for part in parts for one in part.again),
            next((part.why for part in parts if part.why), ""),
            tuple(failure for part in parts for failure in part.refused),
            any(part.blocked for part in parts),
        )
