"""A copy as MirrorMaker 2 leaves it behind, made by a plain producer: repeated stretches, dropped records, and what it stores."""

from __future__ import annotations

import json
import random
import struct
from collections import Counter
from collections.abc import Callable, Sequence

from kafka_replication.kafka.groups import Committed, commit
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.runs import groups
from tests.support.checker import Record, read
from tests.support.scenario import Rec, Scenario

Read = list[tuple[int, Record]]


def everything(_: Record) -> bool:
    return True


class Mirrored:
    """Copies partitions of the scenario's source topic to its target topic, and remembers what MirrorMaker would."""

    def __init__(
        self, scene: Scenario, keeps: Callable[[Record], bool] = everything, *, committed: bool = True
    ) -> None:
        self.scene, self._keeps, self._committed = scene, keeps, committed
        self.ends: dict[int, int] = {}  # by partition, behind the last copied source offset
        self.doubles: dict[int, int] = {}
        self._copied: dict[int, list[int]] = {}  # by partition, the source offset of each target record

    def source(self, partition: int) -> Read:
        return read(self.scene.source.bootstrap, self.scene.topic, partition, committed=self._committed)

    def copy(self, partition: int, stretches: Sequence[tuple[int, int]]) -> None:
        """``stretches`` are of the records that it keeps, by number."""
        kept = [each for each in self.source(partition) if self._keeps(each[1])]
        copied = [kept[number] for first, until in stretches for number in range(first, until)]
        records = [Rec(r.key, r.value, r.headers, r.timestamp) for _, r in copied]
        self.scene.target.produce(self.scene.topic, records, partition)
        self.ends[partition] = max(offset for offset, _ in copied) + 1
        self._copied[partition] = [offset for offset, _ in copied]
        self.doubles[partition] = len(copied) - len(set(self._copied[partition]))

    def store(self, lag: int = 0, *, syncs_only: bool = False, alias: str = "") -> None:
        """The topics that MirrorMaker writes to. Its stored offset is up to ``lag`` behind what is on the target."""
        scene, alias = self.scene, alias or self.scene.name
        for topic, side in (
            (f"mm2-offsets.{alias}.internal", scene.target),
            ("mm2-offset-syncs.b.internal", scene.source),
        ):
            if not side.partitions(topic):
                side.create(topic, 2 if side is scene.target else 1, {"cleanup.policy": "compact"})
        for partition, end in self.ends.items():
            stored = max(0, end - 1 - lag)
            name = scene.topic.encode()
            key = struct.pack(">h", len(name)) + name + struct.pack(">i", partition)
            on_target = [offset for offset, _ in read(scene.target.bootstrap, scene.topic, partition)]
            copies = [*zip(self._copied[partition], on_target, strict=True)]
            # MirrorMaker notes one in a hundred, and those behind a hole; the first of these is not true.
            noted = [(copies[0][0], on_target[-1] + 1), *copies[:: max(1, len(copies) // 10)]]
            noted = [pair for pair in noted if pair[0] <= stored] or [(0, 0)]
            synced = [Rec(key, struct.pack(">qq", *pair)) for pair in noted]
            scene.source.produce("mm2-offset-syncs.b.internal", synced)
            if not syncs_only:
                stored_key = json.dumps(
                    ["MirrorSourceConnector", {"cluster": alias, "partition": partition, "topic": scene.topic}]
                )
                values = [json.dumps({"offset": offset}).encode() for offset in (stored // 2, stored)]
                scene.target.produce(
                    f"mm2-offsets.{alias}.internal",
                    [Rec(stored_key.encode(), value) for value in values],
                    partition % 2,
                )


def check_groups(scene: Scenario, partitions: int, chance: random.Random, number: int = 10) -> list[int]:
    """Groups that stand anywhere at the source read on, after they were moved, all that they have not read and is on
    the target, and no more again than was said: so much of each place.
    """
    source = [read(scene.source.bootstrap, scene.topic, partition) for partition in range(partitions)]
    target = [read(scene.target.bootstrap, scene.topic, partition) for partition in range(partitions)]
    for group in range(number):
        at = {
            TopicPartition(scene.topic, partition): Committed(
                chance.randint(0, (records[-1][0] + 1) // chance.choice((1, 4)))
            )
            for partition, records in enumerate(source)
        }
        assert not commit(scene.source.admin, f"{scene.name}-{group}", at)
    scene.settings["groups"] = {"include": [f"^{scene.name}"]}
    moved = groups.move(scene.bare_run("groups"), apply=True)
    places = [place for row in moved.groups for place in row.partitions]
    assert len(places) == number * partitions and all(place.state == "moved" for place in places), moved.text
    for place in places:
        records = source[place.source.partition]
        there = Counter(record for _, record in target[place.source.partition])
        on_source = {record for _, record in records}  # MirrorMaker copies aborted records, too
        found = Counter(
            record
            for offset, record in target[place.source.partition]
            if offset >= (place.place or 0) and record in on_source
        )
        unread = Counter(record for offset, record in records if offset >= place.committed) & there
        assert not unread - found, place
        assert (found - unread).total() <= place.again, place
    return [place.again for place in places]


def killed_at_random(chance: random.Random, records: int, kills: int) -> list[tuple[int, int]]:
    """Stretches of a copy that died so often, each time going on from a place that it had stored."""
    stretches, stored, reached = list[tuple[int, int]](), 0, 0
    for _ in range(kills + 1):
        until = chance.randint(stored, records - 1) + 1
        stretches.append((stored, until))
        reached = max(reached, until)
        stored = chance.randint(stored, until)
    return stretches
