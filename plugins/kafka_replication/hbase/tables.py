"""Makes tables, and asks about them: whether they are still the same ones, and whether they can be written to."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, Final

from kafka_replication.hbase.client import SEE, Answer, Client
from kafka_replication.hbase.protocol import thrift
from kafka_replication.hbase.rows import FAMILY, ORIGIN, partition_begins, put
from kafka_replication.model.errors import NotAuthorized, NotReady, Refused, ReplicationError
from kafka_replication.model.targets import RECORDS, Shape
from kafka_replication.planning.snapshot import Problem

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


def problem_of(name: str, there: Any, shape: Shape = RECORDS) -> Problem | None:
    """The reason why no record may be written to a table as it is; None if it may be."""
    families = {family.name: family for family in there.columns or ()}
    if FAMILY not in families:
        return Problem(f"{name} on the target has no family {FAMILY.decode()!r}", _add_family(name))
    if problem := family_problem(name, _decoded(families[FAMILY].attributes)):
        return problem
    if id_of(there) is None:
        command = f"alter '{name}', METADATA => {{'{ID.decode()}' => '{uuid.uuid4().hex}'}}"
        return Problem(
            f"{name} on the target has no {ID.decode()}, by which one that is created again is told from it",
            f"in HBase's shell, before anything is written there: {command}",
        )
    if (made := (there.attributes or {}).get(SHAPE, RECORDS.encode()).decode()) != shape:
        command = f"alter '{name}', METADATA => {{'{SHAPE.decode()}' => '{shape}'}}"
        return Problem(
            f"{name} was made for 'shape: {made}', not for 'shape: {shape}': rows of both cannot be told apart",
            f"write to another table (topics.rename); one of your own, which has no rows yet, can be prepared:"
            f" {command}",
        )
    if (there.attributes or {}).get(READ_ONLY, b"false").lower() == b"true":
        return Problem(f"{name} on the target is read only", f"alter '{name}', READONLY => false")
    return None


def family_problem(name: str, settings: Mapping[str, str]) -> Problem | None:
    """The reason why a family with these settings would hide what is written."""
    ttl = settings.get("TTL", str(FOREVER))
    if ttl not in (str(FOREVER), "FOREVER"):
        return Problem(
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


def _decoded(attributes: Mapping[bytes, bytes] | None) -> dict[str, str]:
    return {name.decode(): value.decode(errors="replace") for name, value in (attributes or {}).items()}
