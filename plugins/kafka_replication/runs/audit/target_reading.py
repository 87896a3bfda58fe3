"""Target partitions that have chunks of several keys, or records of others between ours.

Each of them is read once for all source partitions. Here is decided what is read, and whose it is; a worker reads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from kafka_replication.config import Replication
from kafka_replication.ledger.entries import Receipt
from kafka_replication.ledger.placement import Part
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import Coverage, OffsetRange, TopicPartition, readable
from kafka_replication.reporting.audit import PartitionAudit
from kafka_replication.runs.audit.choosing import AuditRequest, Chosen
from kafka_replication.runs.audit.parts import parts
from kafka_replication.runs.audit.sides import Sides, gone
from kafka_replication.verification.auditing import Audit, Audited, Claim, Size
from kafka_replication.verification.findings import Findings
from kafka_replication.verification.verify import PartDigest

Name = tuple[PartitionKey, int, int, int]  # key, generation, first source offset, target partition


def name_of(key: PartitionKey, receipt: Receipt, part: Part) -> Name:
    return key, receipt.generation, receipt.range.from_, part.partition


@dataclass(frozen=True, slots=True)
class Named:
    """A part of a chunk, or of a retry, in one target partition. Its digest is wanted, or only its offsets matter."""

    name: Name
    offsets: Coverage
    receipt: Receipt | None = None  # if its digest is wanted

    @property
    def claim(self) -> Claim:
        return Claim(self.offsets, self.receipt.digest_kind if self.receipt else None)

    @property
    def first(self) -> int:
        return self.offsets.ranges[0].from_

    @property
    def size(self) -> Size:
        """The size of reading it."""
        if self.receipt is None:
            return Size()
        span, mean = self.offsets.span, self.receipt.bytes // max(1, self.receipt.count)
        return Size(offsets=span, records=span, bytes=span * mean)


@dataclass(slots=True, kw_only=True)
class TargetReading:
    """The tasks, each for a part of a target partition, and then what they found."""

    tasks: list[Audit] = field(default_factory=list)
    named: dict[int, Sequence[Named]] = field(default_factory=dict)  # those of a task's claims, by its id
    searched: set[TopicPartition] = field(default_factory=set)  # also what lies between the claims is to be looked at
    failed: dict[TopicPartition, str] = field(default_factory=dict)
    not_searched: set[str] = field(default_factory=set)  # target topics with records of receipts that have expired
    parts: dict[Name, PartDigest] = field(default_factory=dict)
    found: list[tuple[TopicPartition, Findings]] = field(default_factory=list)

    def take(self, task: Audit, result: Audited) -> None:
        at = task.partition
        assert isinstance(at, TopicPartition)
        if result.findings.errors:
            self.failed[at] = result.findings.errors[0]
            return
        self.found.append((at, result.findings))
        self.parts |= {self.named[task.id][number].name: part for number, part in result.parts.items()}

    def report_extra(self, result: PartitionAudit, keys: Collection[PartitionKey]) -> None:
        """Add the records of nobody that are reported with this partition, or why they could not be looked for: those
        in the target partition of its number, and with the first of ``keys`` those in further ones.
        """
        key = result.key
        numbers = {other.source.partition for other in keys if other.target_topic == key.target_topic}
        first = key.source.partition == min(numbers)

        def is_own(at: TopicPartition) -> bool:
            own = at.partition == key.source.partition or (first and at.partition not in numbers)
            return own and at.topic == key.target_topic

        for at, found in self.found:
            if is_own(at):
                result.add(found)
        for at in sorted(filter(is_own, self.searched & self.failed.keys())):
            result.fail(self.failed[at])


def plan_reading(
    replication: Replication, sides: Sides, chosen: Sequence[Chosen], request: AuditRequest
) -> TargetReading:
    """Decide which target partitions are read so.

    If whole topics are audited, records that belong to no receipt are looked for, too. Not if receipts have expired:
    such a record may be of one of them.
    """
    reading, named = TargetReading(), _named(sides, chosen)
    whole = request.is_whole and not replication.placing.shared
    if whole:
        reading.not_searched |= {one.key.target_topic for one in chosen if sides.receipts.incomplete(one.key)}
    for at, here in sorted(named.items()):
        searches = whole and at.topic not in reading.not_searched
        if searches:
            reading.searched.add(at)
        if (log := sides.log(at)) is None:
            reading.failed[at] = str(sides.failures.get(at) or gone(at))
            continue
        positions = sides.view.positions
        # Earlier generations may have left records there, also such as no receipt names.
        reset = any(position.generation > 1 and key.target_topic == at.topic for key, position in positions.items())
        if replication.on_existing_target == "append" or reset:
            current = (one.first for one in here if positions[one.name[0]].generation == one.name[1])
            log = readable(max(min(current, default=log.until), log.from_), log.until)
        if not searches and not any(one.receipt for one in here):
            continue
        for some, window in divided(here, log):
            if searches or any(one.receipt for one in some):
                number = len(reading.tasks)
                reading.named[number] = some
                reading.tasks.append(
                    Audit(
                        id=number,
                        partition=at,
                        target_logs={at.partition: log},
                        claims=tuple(one.claim for one in some),
                        searched=window if searches else None,
                        size=sum((one.size for one in some), Size()),
                    )
                )
    return reading


def divided(here: Sequence[Named], log: OffsetRange) -> Iterator[tuple[list[Named], OffsetRange]]:
    """The claims on one partition in parts, each as large as a task may be, with the window of the log that each part
    covers: from its first claim to that of the next one. Earlier claims that reach into a window come with it, their
    digest unwanted there.
    """
    groups = list(parts(sorted(here, key=lambda one: one.first), lambda one: one.size)) or [[]]
    between = (min(max(log.from_, some[0].first), log.until) for some in groups[1:])
    earlier = list[Named]()
    for some, (from_, until) in zip(groups, pairwise([log.from_, *between, log.until]), strict=True):
        earlier = [one for one in earlier if one.offsets.ranges[-1].until > from_]
        yield [*some, *(replace(one, receipt=None) for one in earlier)], OffsetRange(from_, until)
        earlier += some


def _named(sides: Sides, chosen: Sequence[Chosen]) -> Mapping[TopicPartition, Sequence[Named]]:
    """The parts of all chunks in the target topics that have chunks which lie between those of others."""
    named: dict[TopicPartition, list[Named]] = {}
    topics = set[str]()
    for one in chosen:
        key, topic = one.key, sides.target.get(one.key.target_topic)
        asked = {receipt.range.from_ for receipt in one.comparable}
        for receipt in sides.receipts.all(key):
            if topic is None or receipt.ids.target_topic != topic.topic_id:
                continue
            wanted = receipt.interleaved and receipt.generation == one.position.generation
            wanted = wanted and receipt.range.from_ in asked
            for part in receipt.parts:
                at = TopicPartition(key.target_topic, part.partition)
                mine = Named(name_of(key, receipt, part), part.offsets, receipt if wanted else None)
                named.setdefault(at, []).append(mine)
                topics |= {at.topic} if receipt.interleaved else set()
        for entry, part in sides.retried(key):
            name = key, entry.generation, -1 - entry.offsets.ranges[0].from_, part.partition
            at = TopicPartition(key.target_topic, part.partition)
            named.setdefault(at, []).append(Named(name, part.offsets))
    places = named.keys() | sides.ends.keys() | sides.failures.keys()
    return {at: named.get(at, []) for at in places if at.topic in topics}
