"""The conformance suite of sinks, on Kafka's in each profile; and broken sinks, which it must notice."""

from __future__ import annotations

import pytest

from kafka_replication.kafka.write.sink import KafkaSink
from kafka_replication.model.delivery import PROFILES, Delivery
from kafka_replication.model.partitioning import Partitioning
from tests.contract.copy_case import SETTINGS, CopyCase
from tests.contract.sink.broken import ALL, UNSAFE, Broken, BrokenAcknowledgedSink, BrokenSink, Unsafe
from tests.contract.sink.checks import FOREIGN, PROMISED, Check
from tests.support.scenario import Cluster

GUARANTEES = dict(zip(PROFILES, PROMISED, strict=True))
# What a weaker profile promises as well is shown once, but for the first check of each.
CHOSEN = [
    pytest.param(delivery, check, id=f"{delivery}-{check.__name__}")
    for delivery, guarantee in GUARANTEES.items()
    for check in (PROMISED[guarantee] if guarantee in ("transactional", "acknowledged") else PROMISED[guarantee][:3])
]
SPREAD = [check for check in PROMISED["transactional"] if check not in FOREIGN]


@pytest.mark.parametrize(("delivery", "check"), CHOSEN)
def test_sink(delivery: Delivery, check: Check, kafka_sides: tuple[Cluster, Cluster]) -> None:
    case = CopyCase(*kafka_sides, delivery=delivery)
    check(case)


@pytest.mark.parametrize("check", SPREAD, ids=lambda check: check.__name__)
def test_sink_of_several_partitions(check: Check, copy_case: CopyCase) -> None:
    """Its target partitions have other writers by design, so foreign records are not its business."""
    copy_case.sink = KafkaSink(copy_case.target_settings, SETTINGS, partitioning=Partitioning(name="by_key"))
    check(copy_case)


@pytest.mark.parametrize("broken", ALL, ids=lambda broken: getattr(broken.session, "__name__", "?"))
def test_a_broken_sink_is_noticed(broken: Broken, copy_case: CopyCase) -> None:
    copy_case.sink = BrokenSink(copy_case, broken)
    with pytest.raises(AssertionError):
        broken.noticed_by(copy_case)


@pytest.mark.parametrize("unsafe", UNSAFE, ids=lambda unsafe: str(unsafe.session.__name__))
def test_a_broken_sink_without_transactions_is_noticed(unsafe: Unsafe, kafka_sides: tuple[Cluster, Cluster]) -> None:
    case = CopyCase(*kafka_sides, delivery="at_least_once")
    case.sink = BrokenAcknowledgedSink(case, unsafe)
    with pytest.raises(AssertionError):
        unsafe.noticed_by(case)
