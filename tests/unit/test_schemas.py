"""The log of a schema registry: which ids it gives, which targets may not be copied to, and which ids nobody knows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_replication.model.offsets import OffsetRange, PartitionKey, TopicPartition
from kafka_replication.model.trouble import Trouble
from kafka_replication.planning import preflight, schemas
from kafka_replication.planning.plan import PartitionPlan, Plan, State
from kafka_replication.planning.schemas import Version, other_ids, version_of
from tests.support.planning import IDS
from tests.support.preflight_worlds import SAFE, replication, sides, topic
from tests.support.registry import deleted, registered

AT = TopicPartition("orders", 3)


def versions(records: Iterable[tuple[bytes | None, bytes | None]]) -> list[Version]:
    return [one for offset, (key, value) in enumerate(records) if (one := version_of(offset, key, value))]


@dataclass
class Registry:
    """A registry as its log shows it: an id is given once, equal schemas of one context share theirs."""

    log: list[Version] = field(default_factory=list)
    given: dict[str, int] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)

    def register(self, subject: str, text: str) -> None:
        number = self.numbers[subject] = self.numbers.get(subject, 0) + 1
        id_ = self.given.setdefault(text, len(self.given) + 1)
        self.add(registered(subject, number, id_, text))

    def delete(self, subject: str) -> None:
        if number := self.numbers.get(subject, 0):
            self.add(deleted(subject, number))

    def add(self, record: tuple[bytes | None, bytes | None]) -> None:
        version = version_of(len(self.log), *record)
        assert version is not None
        self.log.append(version)


SUBJECTS = st.sampled_from(["a-value", "b-value", "b-key"])
STEPS = st.lists(st.tuples(SUBJECTS, st.sampled_from(["", "x", "y", "z", "long"])), max_size=20)


def registry(steps: Sequence[tuple[str, str]]) -> Registry:
    """An empty text deletes the newest version of the subject for good."""
    made = Registry()
    for subject, text in steps:
        made.register(subject, text) if text else made.delete(subject)
    return made


def compacted(log: Sequence[Version], data: st.DataObject) -> list[Version]:
    """Some of those records are gone that compaction may remove: older ones of a key, and deletions. What is older than
    one that is gone is gone, too, so that no deletion leaves what it deletes.
    """
    last = {(one.subject, one.number): one.offset for one in log}
    may_go = [one for one in log if one.schema is None or one.offset != last[one.subject, one.number]]
    gone = dict[tuple[str, int], int]()  # by key, the last offset that is
    for one in data.draw(st.sets(st.sampled_from(may_go))) if may_go else set():
        gone[one.subject, one.number] = max(one.offset, gone.get((one.subject, one.number), -1))
    return [one for one in log if one.offset > gone.get((one.subject, one.number), -1)]


@given(STEPS, st.data())
def test_copies_are_never_refused_however_both_sides_were_compacted(
    steps: list[tuple[str, str]], data: st.DataObject
) -> None:
    log = registry(steps).log
    position = data.draw(st.integers(0, len(log)))
    target = [replace(one, offset=2 * one.offset) for one in log[:position]]
    ours = target[-1].offset + 1 if target else 0
    found = other_ids(compacted(log, data), compacted(target, data), position=position, ours=ours)
    assert found == []


@given(STEPS, STEPS, st.data())
def test_no_target_with_another_schema_for_an_id_gets_through(
    steps: list[tuple[str, str]], others: list[tuple[str, str]], data: st.DataObject
) -> None:
    """Nothing was copied yet: each id of the target has to be one of the source, with its schema."""
    source, target = registry(steps).log, registry(others).log
    here, there = schemas.ids(schemas.standing(source).values()), schemas.ids(schemas.standing(target).values())
    same = all(set(there[id_]) <= set(here.get(id_, ())) for id_ in there)
    assert (other_ids(compacted(source, data), compacted(target, data), position=0, ours=0) == []) == same


ORDERS, PAYMENTS = registered("orders-value", 1, 1, "orders"), registered("payments-value", 1, 2, "payments")
OTHER, OWN = registered("clicks-value", 1, 1, "clicks"), registered("clicks-value", 1, 7, "clicks")


@pytest.mark.parametrize(
    ("source", "target", "ours", "said"),
    [
        (
            [ORDERS],
            [OTHER],
            0,
            "id 1 is clicks-value version 1 there, and orders-value version 1 with another schema at",
        ),
        ([ORDERS], [OWN], 0, "id 7 is clicks-value version 1 there, and nothing at the source"),
        ([ORDERS], [ORDERS, OWN], 1, "id 7 is clicks-value version 1 there"),
        ([ORDERS, deleted("orders-value", 1), registered("a", 1, 1, "a")], [ORDERS], 1, ""),
        (
            [registered("a", 1, 1, "a")],
            [ORDERS],
            1,
            "id 1 is orders-value version 1 there, and a version 1 with another",
        ),
        ([ORDERS], [registered("orders-value", 1, 1, "orders", schemaType="JSON")], 0, "with another schema"),
        ([ORDERS], [registered("orders-value", 1, 1, "orders", schemaType="AVRO", references=[])], 0, ""),
        (
            [ORDERS],
            [registered(":.dr:orders-value", 1, 1, "x")],
            0,
            "id 1 of context .dr is :.dr:orders-value version 1",
        ),
        ([ORDERS], [ORDERS, (b'{"keytype":"NOOP","magic":0}', None)], 0, ""),
        ([ORDERS, PAYMENTS], [ORDERS], 1, ""),
        ([ORDERS], [registered("orders-value", 1, 9, "orders")], 0, "id 9 is orders-value version 1 there"),
    ],
    ids=[
        "collision",
        "own id",
        "own id behind copies",
        "an id given again, its deletion still to be copied",
        "an id given again, its deletion gone",
        "another type",
        "defaults that are written out",
        "another context",
        "a registry that has only started",
        "to be copied",
        "the same schema under another id, which copying would overwrite",
    ],
)
def test_ids_of_the_target(source: Any, target: Any, ours: int, said: str) -> None:
    found = other_ids(versions(source), versions(target), position=ours, ours=ours)
    assert said in "; ".join(found) and bool(found) == bool(said)


def test_many_ids_are_counted() -> None:
    target = [registered("s", n, n, f"t{n}") for n in range(1, 10)]
    assert other_ids([], versions(target), position=0, ours=0)[-1] == "and 4 more"


@given(st.binary() | st.none(), st.binary() | st.none())
def test_no_bytes_stop_the_reading(key: bytes | None, value: bytes | None) -> None:
    version_of(0, key, value)
    version_of(0, ORDERS[0], value)


@pytest.mark.parametrize("value", [b"[" * 100_000, b'{"id": "1", "schema": "x"}', b'{"id": 1}', b"\xff"])
def test_a_value_that_no_registry_reads_is_none_of_its_schemas(value: bytes) -> None:
    assert version_of(0, ORDERS[0], value) is None


@pytest.mark.parametrize(
    ("data", "id_"),
    [
        (b"\0\0\0\0\7payload", 7),
        (b"\0\0\0\1\0", 256),
        (None, None),
        (b"\0\0\0\7", None),  # an integer of four bytes
        ((5).to_bytes(8), None),  # and one of eight
        (b"\1\0\0\0\7", None),
        (b"\0\xff\0\0\0payload", None),
        (b'{"a": 1}', None),
    ],
)
def test_ids_in_records(data: bytes | None, id_: int | None) -> None:
    assert schemas.wire_id(data) == id_


def test_an_unknown_id_is_named_once_with_an_example() -> None:
    sampled = [(AT, offset, None, b"\0\0\0\0\7") for offset in (4, 5)] + [(AT, 6, b"\0\0\0\0\1", b"\0\0\0\0\2x")]
    (found,) = schemas.unknown(sampled, {1, 2}, "_schemas")
    assert found.severity == "warning" and found.topic == "orders"
    assert "values of its last records" in found.what and "does not have: 7 (orders-3 at offset 4)" in found.what
    keys, values = schemas.unknown(sampled, set(), "_schemas")
    assert "keys of its" in keys.what and "2 (orders-3 at offset 6), 7 (" in values.what


def fits(target: Any = None, *, partitions: int = 1, policy: str | None = "compact", **changes: Any) -> list[Trouble]:
    config = {} if policy is None else {"cleanup.policy": policy}
    source = topic("_schemas", config, partitions=partitions)
    there = {} if target is None else {target.name: target}
    file = replication(topics={"include": ["_schemas"], **changes.pop("topics", {})}, **changes)
    found = preflight.check(file, sides({"_schemas": source}, there))
    return [one for one in found if "registry" in one.what or "schemas" in one.what]


@pytest.mark.parametrize(
    ("given", "severity", "said"),
    [
        ({}, None, ""),
        ({"partitions": 3}, "error", "would get 3 partitions"),
        ({"target_topics": {"partitions": 6}}, "error", "would get 6 partitions"),
        ({"policy": "delete"}, "error", "would get cleanup.policy=delete"),
        ({"policy": None}, "error", "would get cleanup.policy=delete"),
        ({"policy": None, "target_topics": {"overrides": {"_schemas": {"cleanup.policy": "compact"}}}}, None, ""),
        ({"target": topic("_schemas", SAFE, 1)}, "error", "has cleanup.policy=delete"),
        ({"filter": "key == 'a'"}, "error", "filter and transform would"),
        ({"transform": "provenance"}, None, ""),
        ({"topics": {"rename": "dr.{topic}"}}, "warning", "does not find its schemas under this name"),
    ],
)
def test_what_a_registry_would_not_accept(given: dict[str, Any], severity: str | None, said: str) -> None:
    found = fits(**given)
    assert [one.severity for one in found] == ([severity] if severity else []), found
    assert said in "; ".join(one.what for one in found)


def planned(name: str, state: State = State.BEHIND) -> PartitionPlan:
    key = PartitionKey("orders-dr", TopicPartition(name, 0), name)
    copy = OffsetRange(0, 10) if state is State.BEHIND else None
    return PartitionPlan(
        key=key, state=state, ids=IDS, generation=1, start=0, position=0, source_end=10, watermark=None, copy=copy
    )


def test_the_schemas_take_the_first_turn_and_the_others_wait_for_them() -> None:
    log, orders = planned("_schemas"), planned("orders")
    assert schemas.in_turn([orders, log], refused=False) == [log]
    assert schemas.in_turn([orders], refused=False) == [orders], "once nothing of them is left"
    assert schemas.in_turn([orders], refused=True) == []
    plan = Plan("orders-dr", (orders, log))
    assert not schemas.is_refused(plan, set()) and not schemas.is_refused(plan, {orders.key})
    assert schemas.is_refused(plan, {log.key})
    assert schemas.is_refused(Plan("orders-dr", (orders, planned("_schemas", State.FOREIGN))), set())


def test_records_are_written_as_a_registry_writes_them() -> None:
    key, value = registered("orders-value", 1, 1, "orders")
    assert key == b'{"keytype":"SCHEMA","subject":"orders-value","version":1,"magic":1}'
    assert json.loads(value or b"") == {
        "subject": "orders-value",
        "version": 1,
        "id": 1,
        "schema": "orders",
        "deleted": False,
    }
