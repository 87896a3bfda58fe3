"""The conformance suite of sinks, on Kafka's; and broken sinks, which it must notice."""

from __future__ import annotations

import pytest

from kafka_replication.kafka.sink import KafkaSink
from kafka_replication.model.partitioning import Partitioning
from tests.contract.copy_case import SETTINGS, CopyCase
from tests.contract.sink.broken import ALL, Broken, BrokenSink
from tests.contract.sink.checks import CHECKS, FOREIGN, Check


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_sink(check: Check, copy_case: CopyCase) -> None:
    check(copy_case)


@pytest.mark.parametrize("check", [check for check in CHECKS if check not in FOREIGN], ids=lambda check: check.__name__)
def test_sink_of_several_partitions(check: Check, copy_case: CopyCase) -> None:
    """Its target partitions have other writers by design, so foreign records are not its business."""
    copy_case.sink = KafkaSink(copy_case.target_settings, SETTINGS, partitioning=Partitioning(name="by_key"))
    check(copy_case)


@pytest.mark.parametrize("broken", ALL, ids=lambda broken: getattr(broken.session, "__name__", "?"))
def test_a_broken_sink_is_noticed(broken: Broken, copy_case: CopyCase) -> None:
    copy_case.sink = BrokenSink(copy_case, broken)
    with pytest.raises(AssertionError):
        broken.noticed_by(copy_case)
