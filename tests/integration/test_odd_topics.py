"""Topics with odd contents, copied by each engine in several runs: other clients than ours find source and target equal.

ODD_TOPICS=n makes so many topics, ODD_SEED=x names the first one; each further one has the next number.
ODD_ENGINES=auto,record,batch adds an engine to the usual two.
"""

from __future__ import annotations

import os
import random
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import compress
from pathlib import Path

import pytest

from kafka_replication.kafka import offsets
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.reporting.run import RunReport
from kafka_replication.runs.audit import AuditRequest, audit
from tests.support.compaction import clean_every
from tests.support.jobs import InProcess
from tests.support.odd_topics import LATEST, Kind, OddProducer, OddTopic, odd_topic
from tests.support.other_clients import Stored, as_stored, by_java, by_kafka_python
from tests.support.raw_produce import RawRecord
from tests.support.scenario import Cluster, Rec, Scenario
from tests.support.waiting import wait_until

TOPICS = int(os.environ.get("ODD_TOPICS", "2"))
TOGETHER = 8  # topics that one consumer of Java reads
ENGINES = os.environ.get("ODD_ENGINES", "auto,record").split(",")


@dataclass(frozen=True, kw_only=True)
class Side:
    """The contents of the topics of one side, as each reader finds them; by partition, which names the topic."""

    stored: Mapping[int, list[tuple[int, Stored]]]
    java: Mapping[int, list[bytes]]
    python: Mapping[int, list[Stored]] = field(default_factory=dict)

    def records(self, number: int) -> list[Stored]:
        return [record for _, record in self.stored[number]]


def read(cluster: Cluster, topics: Sequence[OddTopic], rename: str = "{}") -> Side:
    stored = {topic.partition: as_stored(cluster, rename.format(topic.name), topic.partition) for topic in topics}
    names = "|".join(re.escape(rename.format(topic.name)) for topic in topics)
    return Side(
        stored=stored,
        java=by_java(cluster.bootstrap, names, sum(map(len, stored.values()))),
        python={
            topic.partition: by_kafka_python(cluster.bootstrap, rename.format(topic.name), topic.partition)
            for topic in topics
            if not topic.has_bytes  # which kafka-python cannot read
        },
    )


def produced(cluster: Cluster, topics: Sequence[OddTopic], dice: random.Random) -> None:
    """Also their compaction is over then."""
    for topic in topics:
        cluster.create(topic.name, topic.partition + 1, topic.config)
    with closing(OddProducer(cluster, dice)) as producer:
        for topic in topics:
            producer.produce(topic)
    at = [TopicPartition(topic.name, topic.partition) for topic in topics]
    wait_until(lambda: cluster.is_settled(at))
    for topic in topics:
        if topic.kind == Kind.TRIMMED:
            end = offsets.high_watermarks(cluster.admin, at)[TopicPartition(topic.name, topic.partition)]
            cluster.delete_before(topic.name, topic.partition, dice.randrange(end))
    compacted = [topic for topic in topics if topic.kind == Kind.COMPACTED]
    if compacted:
        clean_every(cluster, ms=200)
    for topic in compacted:
        compact(cluster, topic)


def compact(cluster: Cluster, topic: OddTopic) -> None:
    """Write until the log is rolled and of each key one record is left: cleaning it once more changes nothing then."""
    later = iter(range(1, 10_000))

    def is_compacted() -> bool:
        written = next(later)
        roll = Rec(b"roll%d" % written, b"v", (), LATEST // 4 * 3 + 3_600_000 * written)
        cluster.produce(topic.name, [roll], topic.partition)
        keys = [record.key for _, record in as_stored(cluster, topic.name, topic.partition)]
        return len(keys) == len(set(keys))

    wait_until(is_compacted)
    cluster.set(topic.name, cleanup_policy="delete")


@dataclass(frozen=True, kw_only=True)
class Copy:
    """The copy of a group of topics by one engine."""

    engine: str
    scene: Scenario
    topics: Sequence[OddTopic]

    @property
    def rename(self) -> str:
        return f"{self.engine}.{{}}"

    def run(self, most: Sequence[int | None]) -> dict[int, str]:
        """In so many runs. Returns the error of each topic that is refused."""
        refused = dict[int, str]()
        for span in most:
            report = self.scene.run(InProcess(at_once=4), max_records_per_run=span)
            refused = {line.key.source.partition: line.error for line in report.ranges if line.error}
            assert report.outcome == "failed" if refused else report.outcome in ("done", "nothing_to_do"), said(report)
            assert all(line.digest_ok is not False for line in report.ranges), said(report)
        return refused

    def check_is_verified(self) -> None:
        """Up to the end of the source, and an audit finds nothing."""
        at = {topic: TopicPartition(topic.name, topic.partition) for topic in self.topics}
        ends = offsets.last_stable(self.scene.source.admin, at.values())
        marks = self.scene.store.watermarks(self.scene.name)
        audited = audit(self.scene.bare_run("audit"), AuditRequest())
        outcomes = {each.key.source: each.outcome for each in audited.partitions}
        for topic in self.topics:
            mark = marks[self.scene.key(topic.partition, topic.name, self.rename.format(topic.name))]
            assert mark.offset == ends[at[topic]], f"{self.engine}: {topic}"
            assert outcomes[at[topic]] == "clean", f"{self.engine}: {topic}: {audited.text()}"

    def set_aside(self, refused: Mapping[int, str]) -> dict[int, list[int]]:
        """Let a run go on behind refused records. The source offsets of those that were left out, by partition."""
        if not refused:
            return {}
        self.scene.settings["failures"] = {"policy": "skip"}
        assert self.run([None]) == {}, self.engine
        keys = {
            topic.partition: self.scene.key(topic.partition, topic.name, self.rename.format(topic.name))
            for topic in self.topics
            if topic.partition in refused
        }
        receipts = self.scene.bare_run().clusters.ledger.receipts(dict.fromkeys(keys.values()))
        return {
            number: sorted(failed.offset for receipt in receipts.all(key) for failed in receipt.failures)
            for number, key in keys.items()
        }

    def check_refusals(self, source: Side, refused: Mapping[int, str], aside: Mapping[int, list[int]]) -> None:
        """Refused is, by name, what the record engine's client would change, where that is the only engine."""
        for topic in self.topics:
            number, about = topic.partition, f"{self.engine}: {topic}"
            odd = [offset for offset, record in source.stored[number] if is_odd(record)]
            left_out = aside.get(number, [])
            assert left_out == (odd if self.engine == "record" else []), about
            assert (number in refused) == bool(left_out), about
            if left_out:
                assert re.search(rf"the record at offset {left_out[0]}\b", refused[number]), (
                    f"{about}: {refused[number]}"
                )

    def check_is_equal(self, source: Side, aside: Mapping[int, list[int]]) -> None:
        """All but the records that were set aside."""
        target = read(self.scene.target, self.topics, self.rename)
        for topic in self.topics:
            number, about = topic.partition, f"{self.engine}: {topic}"
            left_out = set(aside.get(number, ()))
            kept = [offset not in left_out for offset, _ in source.stored[number]]
            assert target.records(number) == list(compress(source.records(number), kept)), about
            assert target.java.get(number, []) == list(compress(source.java.get(number, []), kept)), about
            if number in source.python:
                assert target.python[number] == list(compress(source.python[number], kept)), about


def said(report: RunReport) -> str:
    return "\n".join([report.table(), *(f"{line.key}: {line.error}" for line in report.ranges if line.error)])


def is_odd(record: Stored) -> bool:
    """True if librdkafka would change the record."""
    names = [name for name, _ in record.headers]
    return record.timestamp <= 0 or any(b"\0" in name or b"\xff" in name for name in names)


def as_produced(record: RawRecord | Rec, kind: Kind) -> Stored:
    headers = tuple((name if isinstance(name, bytes) else name.encode(), content) for name, content in record.headers)
    return Stored(0 if kind == Kind.APPENDED else record.timestamp, record.key, record.value, headers)


def check_source(topics: Sequence[OddTopic], source: Side) -> None:
    """The readers see what was written."""
    for topic in topics:
        found, wanted = source.records(topic.partition), [as_produced(each, topic.kind) for each in topic.appended()]
        if topic.kind == Kind.APPENDED:
            found = [record._replace(timestamp=0) for record in found]
        if topic.kind == Kind.TRIMMED:
            wanted = wanted[len(wanted) - len(found) :]
        if topic.kind != Kind.COMPACTED:
            assert found == wanted, str(topic)
        assert len(source.java.get(topic.partition, [])) == len(found), str(topic)
        if topic.partition in source.python:
            assert source.python[topic.partition] == source.records(topic.partition), str(topic)


@pytest.fixture
def copies(clusters: tuple[Cluster, Cluster], tmp_path: Path) -> Iterator[list[Copy]]:
    made: list[Copy] = []
    yield made
    for copy in made:
        copy.scene.store.close()
        for topic in copy.topics:
            copy.scene.target.delete(copy.rename.format(topic.name))
    for name in {topic.name for copy in made for topic in copy.topics}:
        clusters[0].delete(name)


@pytest.mark.slow
@pytest.mark.parametrize("group", range((TOPICS + TOGETHER - 1) // TOGETHER))
def test_other_clients_find_source_and_target_equal(
    clusters: tuple[Cluster, Cluster], tmp_path: Path, copies: list[Copy], group: int
) -> None:
    seed = int(os.environ.get("ODD_SEED") or random.randrange(1_000_000)) + group * TOGETHER
    print(f"ODD_SEED={seed}")
    dice, name = random.Random(seed), f"odd{seed}-{uuid.uuid4().hex[:6]}"
    topics = [
        odd_topic(f"{name}.{number}", seed + number, number)
        for number in range(min(TOGETHER, TOPICS - group * TOGETHER))
    ]
    produced(clusters[0], topics, dice)
    source = read(clusters[0], topics)
    check_source(topics, source)
    spans, left_out = [2 * dice.randrange(1, 120) + 1, None], dict[str, dict[int, list[int]]]()
    for engine in ENGINES:
        folder = tmp_path / engine
        folder.mkdir()
        copy = Copy(engine=engine, scene=Scenario(*clusters, folder), topics=topics)
        copies.append(copy)
        copy.scene.settings |= {
            "topics": {"include": [topic.name for topic in topics], "rename": f"{engine}.{{topic}}"},
            "copy": {"engine": engine, "chunk_records": dice.choice((7, 50, 501, 100_000))},
        }
        refused = copy.run(spans)
        aside = copy.set_aside(refused)
        copy.check_refusals(source, refused, aside)
        copy.check_is_equal(source, aside)
        copy.check_is_verified()
        left_out[engine] = aside
    for topic in topics:
        counts = ", ".join(f"{engine} {len(aside.get(topic.partition, ()))}" for engine, aside in left_out.items())
        print(f"{topic}: {len(source.stored[topic.partition])} records are equal, but for those set aside: {counts}")
