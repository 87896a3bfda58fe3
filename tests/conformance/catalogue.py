"""Checks of what every `Catalogue` has to do. Each gets a case of its own and raises AssertionError."""

from __future__ import annotations

import uuid

from kafka_replication.ledger.entries import POSITIONS, RECEIPTS
from kafka_replication.model.offsets import LEDGER_PARTITIONS, TopicPartition
from kafka_replication.targets.port import ToCreate
from tests.conformance.sink import Check
from tests.conformance.sink_case import SinkCase, records, write_and_commit

SECONDS = 10.0


def fresh() -> str:
    """The name of a topic that is not there."""
    return f"contract-{uuid.uuid4().hex[:8]}"


def a_created_topic_is_described_and_empty(case: SinkCase) -> None:
    catalogue, name = case.target.catalogue, fresh()
    catalogue.create(ToCreate(name=name, partitions=2))
    found = case.opened().catalogue.topics([name])[name]
    assert (found.name, found.topic_id, found.problem) == (name, case.ground.id_of(name), None)
    assert {number: found.offsets(number).readable.span for number in found.partitions} == {0: 0, 1: 0}
    assert catalogue.partitions([name]) == {name: {0, 1}}
    assert found.replication_factor >= 1


def a_topic_that_is_gone_is_left_out_and_has_another_id_later(case: SinkCase) -> None:
    catalogue, missing = case.target.catalogue, fresh()
    assert catalogue.topics([case.topic, missing]).keys() == {case.topic}
    assert catalogue.partitions([case.topic, missing]) == {case.topic: {0}}
    before = case.target.catalogue.topics([case.topic])[case.topic].topic_id
    case.ground.delete(case.topic)
    assert case.target.catalogue.topics([case.topic]) == {}, "asking creates nothing"
    case.ground.create(case.topic)
    assert case.target.catalogue.topics([case.topic])[case.topic].topic_id not in ("", before)


def what_is_there_stays_when_a_topic_is_created_again_or_grows(case: SinkCase) -> None:
    with case.fenced() as (session, position):
        write_and_commit(case, session, position, records(3))
    before = case.ground.id_of(case.topic)
    case.target.catalogue.create(ToCreate(name=case.topic, partitions=1))
    case.target.catalogue.add_partitions(case.topic, 3)
    assert case.opened().catalogue.partitions([case.topic]) == {case.topic: {0, 1, 2}}
    assert case.ground.id_of(case.topic) == before and len(case.values()) == 3
    at = TopicPartition(case.topic, 0)
    ends, _ = case.target.standing.stable_ends([at])
    found = case.target.catalogue.topics([case.topic])[case.topic].offsets(0)
    assert found.readable.until == ends[at] >= 3 and found.readable == case.target.standing.logs([at])[at]


def a_look_tells_topics_from_the_ledger_and_the_quarantine(case: SinkCase) -> None:
    catalogue, other, missing = case.target.catalogue, fresh(), fresh()
    case.ground.create(other)
    seen = catalogue.look(case.file, [case.topic, missing], [other])
    assert seen.target.keys() == {case.topic, other} and seen.quarantine is None
    assert seen.ledger is not None and seen.ledger.keys() == {POSITIONS, RECEIPTS}
    assert all(topic.problem is None and len(topic.partitions) == LEDGER_PARTITIONS for topic in seen.ledger.values())
    assert seen.target_cluster == catalogue.cluster_id() == case.opened().catalogue.cluster_id() != ""
    aside = case.file.quarantine_topic
    catalogue.create(ToCreate(name=aside, partitions=1))
    seen = catalogue.look(case.file, [case.topic])
    assert seen.quarantine is not None and seen.quarantine.name == aside and seen.target.keys() == {case.topic}


def asking_for_rights_creates_nothing_and_fences_nobody(case: SinkCase) -> None:
    catalogue, name = case.target.catalogue, fresh()
    with case.fenced() as (session, position):
        assert catalogue.may_read(SECONDS)
        assert catalogue.refusals([ToCreate(name=name, partitions=1)], SECONDS) == {}
        assert not catalogue.deny_rules(SECONDS)
        catalogue.check_writing()
        write_and_commit(case, session, position, records(3))
    assert catalogue.topics([name]) == {}


ALL: list[Check] = [
    a_created_topic_is_described_and_empty,
    a_topic_that_is_gone_is_left_out_and_has_another_id_later,
    what_is_there_stays_when_a_topic_is_created_again_or_grows,
    a_look_tells_topics_from_the_ledger_and_the_quarantine,
    asking_for_rights_creates_nothing_and_fences_nobody,
]
