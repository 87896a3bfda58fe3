"""The conformance suite of sinks, on Kafka's in each profile; and broken sinks, which it must notice."""

from __future__ import annotations

import pytest

from kafka_replication.kafka.sink import KafkaSink
from kafka_replication.model.choices import PROFILES, Delivery, Partitioning
from kafka_replication.model.errors import TargetLost
from tests.conformance.ground import SETTINGS
from tests.conformance.sink import FOREIGN, PROMISED, Check, a_lost_end_is_noticed
from tests.conformance.sink_case import SinkCase
from tests.contract.kafka_ground import KafkaGround
from tests.contract.sink.broken import ALL, UNSAFE, Broken, BrokenAcknowledgedSink, BrokenSink, Unsafe
from tests.support.scenario import Cluster

# Of Kafka: the other two are promises of other kinds of targets.
GUARANTEES = dict(zip(PROFILES, (name for name in PROMISED if name not in ("idempotent", "latest")), strict=True))
# What a weaker profile promises as well is shown once, but for the first check of each.
CHOSEN = [
    pytest.param(delivery, check, id=f"{delivery}-{check.__name__}")
    for delivery, guarantee in GUARANTEES.items()
    for check in (PROMISED[guarantee] if guarantee in ("transactional", "acknowledged") else PROMISED[guarantee][:3])
]
SPREAD = [check for check in PROMISED["transactional"] if check not in (*FOREIGN, a_lost_end_is_noticed)]


@pytest.mark.parametrize(("delivery", "check"), CHOSEN)
def test_sink(delivery: Delivery, check: Check, kafka_sides: tuple[Cluster, Cluster]) -> None:
    case = SinkCase(KafkaGround(kafka_sides[1]), delivery=delivery)
    check(case)


@pytest.mark.parametrize("check", SPREAD, ids=lambda check: check.__name__)
def test_sink_of_several_partitions(check: Check, kafka_sides: tuple[Cluster, Cluster]) -> None:
    """Its target partitions have other writers by design, so foreign records are not its business, and `target_end` means nothing."""
    case = SinkCase(KafkaGround(kafka_sides[1]))
    case.sink = KafkaSink(case.ground.connection, SETTINGS, partitioning=Partitioning(name="by_key"))
    check(case)


@pytest.mark.parametrize("broken", ALL, ids=lambda broken: getattr(broken.session, "__name__", "?"))
def test_a_broken_sink_is_noticed(broken: Broken, kafka_sides: tuple[Cluster, Cluster]) -> None:
    case = SinkCase(KafkaGround(kafka_sides[1]))
    case.sink = BrokenSink(case, broken)
    with pytest.raises((AssertionError, TargetLost)):  # the latter of a session that notices it by itself
        broken.noticed_by(case)


@pytest.mark.parametrize("unsafe", UNSAFE, ids=lambda unsafe: str(unsafe.session.__name__))
def test_a_broken_sink_without_transactions_is_noticed(unsafe: Unsafe, kafka_sides: tuple[Cluster, Cluster]) -> None:
    case = SinkCase(KafkaGround(kafka_sides[1]), delivery="at_least_once")
    case.sink = BrokenAcknowledgedSink(case, unsafe)
    with pytest.raises(AssertionError):
        unsafe.noticed_by(case)
