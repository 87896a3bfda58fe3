"""Which engine copies a range: the one that `copy.engine` names, if it supports the range."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, get_args

import pytest

from kafka_replication.config import Copy
from kafka_replication.copying.engine import CopyTask, SourceReader, choose
from kafka_replication.copying.sink import Sink
from kafka_replication.kafka.record_engine import ENGINES, FALLBACK, engine_for, exact_for
from kafka_replication.kafka.sink import KafkaSink
from kafka_replication.ledger.entries import Ids
from kafka_replication.model.choices import AUTO, BATCH, SHORT
from kafka_replication.model.errors import Refused
from kafka_replication.model.offsets import OffsetRange, PartitionKey, TopicPartition

KEY = PartitionKey("orders-dr", TopicPartition("orders", 0), "orders")
TASK = CopyTask(key=KEY, range=OffsetRange(0, 9), ids=Ids("SRC", "s", "t"), generation=1, run_id="run-1")
PLAIN = {"bootstrap.servers": "localhost:9092"}
SINK = KafkaSink({"bootstrap.servers": "localhost:9092"}, Copy())


class TakesBatches(KafkaSink):
    def __init__(self) -> None:
        super().__init__(PLAIN, Copy())

    def why_not_batches(self, topic: str, settings: Mapping[str, str] | None = None) -> str | None:
        return None


@dataclass
class Engine:
    name: str
    reason: str | None = None
    digest_kind: str = "list"

    def supports(self, task: CopyTask, sink: Sink) -> str | None:
        return self.reason

    def reader(self, task: CopyTask) -> AbstractContextManager[SourceReader]:
        raise NotImplementedError


def test_the_first_engine_that_supports_the_range_copies_it() -> None:
    engines = [Engine("batch/1", "the topic has records of an old format"), Engine("record/1"), Engine("other/1")]
    found = choose(engines, TASK, SINK)
    assert (found.engine.name, found.why) == ("record/1", "the topic has records of an old format")
    assert choose(engines[1:], TASK, SINK).why == ""


def test_a_range_that_no_engine_supports_is_refused_with_all_reasons() -> None:
    engines = [Engine("batch/1", "an old format"), Engine("record/1", "no records")]
    with pytest.raises(Refused, match=r"orders-0 \[0, 9\).*batch/1: an old format; record/1: no records"):
        choose(engines, TASK, SINK)


def test_every_engine_that_a_file_may_name_exists() -> None:
    named: tuple[Any, ...] = get_args(Copy.model_fields["engine"].annotation)
    assert set(named) == {AUTO, *ENGINES}
    assert {BATCH, FALLBACK} <= ENGINES.keys()


@pytest.mark.parametrize(
    ("engine", "span", "name"),
    [
        ("record", SHORT, "record/1"),
        ("batch", 1, "batch/1"),
        ("auto", SHORT - 1, "record/1"),
        ("auto", SHORT, "batch/1"),
    ],
)
def test_auto_is_the_batch_engine_but_for_short_ranges(engine: Any, span: int, name: str) -> None:
    task, settings = replace(TASK, range=OffsetRange(0, span)), Copy(engine=engine)
    found = engine_for(task, settings, PLAIN, TakesBatches())
    assert (found.engine.name, found.why) == (name, "")
    why = {"record": "copy.engine says so", "batch": ""}.get(
        engine, f"it has fewer than {SHORT:,} offsets" * (span < SHORT)
    )
    assert engine_for(replace(task, planned_engine=BATCH), settings, PLAIN, TakesBatches()).why == why


def test_without_its_packages_auto_copies_each_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kafka_replication.kafka.batch_engine", None)
    task = replace(TASK, range=OffsetRange(0, SHORT))
    found = engine_for(task, Copy(), PLAIN, TakesBatches())
    assert found.engine.name == "record/1" and "is not installed" in found.why
    assert exact_for(task, Copy(), PLAIN, TakesBatches()) is None
    with pytest.raises(ImportError):
        engine_for(task, Copy(engine="batch"), PLAIN, TakesBatches())


def test_a_receipt_will_name_the_engine_and_its_digest_kind() -> None:
    engine = engine_for(TASK, Copy(engine="record"), {"bootstrap.servers": "localhost:9092"}, SINK).engine
    assert (engine.name, engine.digest_kind) == ("record/1", "xxh3_128/1")
