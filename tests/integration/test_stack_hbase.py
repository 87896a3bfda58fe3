"""The HBase of the stack: it starts, keeps its data when it is killed, and speaks the protocol that we write down."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest
from thriftpy2.thrift import TType

from kafka_replication.hbase.client import thrift
from stack.artifacts import HBASE, check, jars, read_lock
from stack.errors import StackError
from stack.hbase_server import HBaseServer
from tests.support.hbase import HBaseGround, definition


@pytest.mark.slow
def test_what_was_acknowledged_is_there_after_a_kill(hbase: HBaseServer) -> None:
    topic, ground = f"stack-{uuid.uuid4().hex[:8]}", HBaseGround(hbase)
    ground.create(topic)
    ground.put_cells(topic, bytes(8), {b"value": b"1"})
    before = hbase.process()
    hbase.kill()
    assert hbase.process() is None
    hbase.start()
    assert before is not None and hbase.process() not in (None, before)
    assert ground.rows(topic) == [(bytes(8), {b"value": b"1"})]
    hbase.start()  # changes nothing
    ground.delete(topic)


def test_only_the_jars_of_the_lock_file_run(tmp_path: Path) -> None:
    expected = read_lock(HBASE.lock)
    check(jars(HBASE), expected, HBASE.lock)
    name = next(iter(expected))
    (tmp_path / name).write_bytes(b"another")
    with pytest.raises(StackError, match=f"wrong checksum: {name}"):
        check(tmp_path, {name: expected[name]}, HBASE.lock)


def test_a_server_that_was_never_started_says_so(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="was never started"):
        _ = HBaseServer("nowhere", tmp_path).port


def fields(kind: Any) -> dict[int, Any]:
    """The number, type, name and elements of each field. Whether it is required does not travel."""
    return {number: _flat(field[:-1]) for number, field in kind.thrift_spec.items()}


def _flat(part: Any) -> Any:
    """An enumeration travels as i32, a structure by its own fields, which are compared by themselves."""
    match part:
        case (TType.I32, name, _):
            return (TType.I32, name)
        case tuple():
            return tuple(_flat(one) for one in part)
        case type():
            return part.__name__
        case _:
            return part


def types_of(module: Any) -> dict[str, Any]:
    return {name: kind for name, kind in vars(module).items() if hasattr(kind, "thrift_spec")}


def test_the_protocol_that_we_write_down_is_that_of_the_gateway() -> None:
    """Every structure, and the arguments and the answer of every call."""
    ours, theirs = thrift(), definition()
    calls = {name: kind for name, kind in vars(ours.THBaseService).items() if hasattr(kind, "thrift_spec")}
    assert len(calls) == 2 * len(ours.THBaseService.thrift_services) == 26
    for name, kind in (*types_of(ours).items(), *calls.items()):
        there = fields(getattr(theirs, name, None) or getattr(theirs.THBaseService, name))
        for number, field in fields(kind).items():
            assert there[number] == field, (name, number)
