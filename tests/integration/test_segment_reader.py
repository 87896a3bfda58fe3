"""Reading copied records back: consecutive chunks are read on, without asking the brokers for each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_replication.kafka import clients
from kafka_replication.kafka.reading import PartitionReader
from kafka_replication.ledger.placement import Part
from kafka_replication.model.errors import TargetLost, VerificationFailed
from kafka_replication.model.offsets import Coverage, OffsetRange
from kafka_replication.verification.digests import BatchDigest, Fingerprint
from tests.conformance.sink_case import segments_of
from tests.contract.copy_case import CopyCase
from tests.support.scenario import Cluster, numbered
from tests.support.waiting import wait_until


@pytest.fixture
def case(clusters: tuple[Cluster, Cluster]) -> CopyCase:
    return CopyCase(*clusters)


def copied(case: CopyCase) -> list[Part]:
    """A commit is answered before its marker stands in the log, so the last marker is awaited: the log has its end then."""
    case.produce(*numbered(50))
    chunks = case.copy(OffsetRange(0, 50), most_records=10)
    wait_until(lambda: case.cluster.is_settled([case.key.target]))
    return [segment.part for chunk in chunks for segment in segments_of(chunk.placement)]


def test_chunks_that_follow_each_other_are_read_with_one_assignment(
    case: CopyCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    segments, assigned, assign = copied(case), list[int](), PartitionReader.assign

    def counted(reader: PartitionReader, offset: int) -> None:
        assigned.append(offset)
        assign(reader, offset)

    def no_admin(config: object) -> None:
        raise AssertionError("the brokers were asked for offsets")

    monkeypatch.setattr(PartitionReader, "assign", counted)
    monkeypatch.setattr(clients, "shared_admin", no_admin)
    with case.sink.verifier(case.key) as reader:
        for segment in segments:
            assert reader.read(segment, Fingerprint()).digest == segment.digest
    assert (len(segments), len(assigned)) == (5, 1)


def test_records_that_were_removed_while_they_were_read_back_are_named(case: CopyCase) -> None:
    segments = copied(case)
    with case.sink.verifier(case.key) as reader:
        case.cluster.delete_before(case.topic, 0, segments[1].first + 3)
        with pytest.raises(VerificationFailed, match=f"now starts at {segments[1].first + 3}"):
            reader.read(segments[1], Fingerprint())
        assert reader.read(segments[2], Fingerprint()).digest == segments[2].digest


@pytest.mark.parametrize("digest", [Fingerprint, BatchDigest], ids=["records", "batches"])
def test_a_target_that_ends_before_what_was_copied_is_called_truncated(
    case: CopyCase, digest: type[Fingerprint | BatchDigest]
) -> None:
    """Its own end tells it from a log whose first records were removed."""
    last = copied(case)[-1]
    beyond = replace(last, offsets=Coverage.of([OffsetRange(last.first + 1000, last.until + 1000)]))
    with case.sink.verifier(case.key) as reader, pytest.raises(TargetLost) as caught:
        reader.read(beyond, digest())
    assert f"ends at {last.until + 1}" in caught.value.what and "starts at" not in caught.value.what
    assert "retention.ms" not in caught.value.remedy
