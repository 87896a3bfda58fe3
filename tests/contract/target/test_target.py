"""Kafka passes the checks of a catalogue, of what stands there, and of decisions; the suite notices what is broken."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_replication.model.errors import Fenced
from tests.conformance import catalogue, deciding, standing
from tests.conformance.sink import Check
from tests.conformance.sink_case import SinkCase
from tests.contract.kafka_ground import KafkaGround
from tests.contract.target.broken import ALL, Broken, with_
from tests.folder_target.ground import FolderGround
from tests.support.scenario import Cluster

# Kafka's clients wait for a topic that is gone, 15 s for each answer.
SOON = [check for check in standing.ALL if check is not standing.a_topic_that_is_gone_has_no_end]


@pytest.mark.parametrize("check", [*catalogue.ALL, *SOON, *deciding.ALL], ids=lambda check: check.__name__)
def test_target(check: Check, kafka_sides: tuple[Cluster, Cluster]) -> None:
    check(SinkCase(KafkaGround(kafka_sides[1])))


@pytest.mark.parametrize("broken", ALL, ids=lambda broken: str(broken.defect.__name__))
def test_a_broken_target_is_noticed(broken: Broken, tmp_path: Path) -> None:
    case = SinkCase(FolderGround(tmp_path / "target", with_(broken.defect)))
    with pytest.raises((AssertionError, Fenced)):  # the latter of a session that notices it by itself
        broken.noticed_by(case)


def test_each_check_is_one_that_something_broken_fails() -> None:
    assert {broken.noticed_by for broken in ALL} == {*catalogue.ALL, *standing.ALL, *deciding.ALL}
