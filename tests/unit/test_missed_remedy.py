"""The commands for what a target misses."""

from __future__ import annotations

import pytest

from kafka_replication.model.commands import on_lines
from kafka_replication.model.offsets import Coverage, OffsetRange, PartitionKey, TopicPartition
from kafka_replication.planning.target_retention import remedy

KEY = PartitionKey("r", TopicPartition("t", 0), "t")


@pytest.mark.parametrize(
    ("ranges", "log_start", "offered", "more"),
    [
        (1, 0, [0], ""),
        (3, 0, [0, 10, 20], ""),
        (3, 12, [12, 20], ""),
        (5, 0, [0, 10, 20], "2 more ranges"),
    ],
)
def test_each_of_the_first_ranges_has_a_line_to_paste(
    ranges: int, log_start: int, offered: list[int], more: str
) -> None:
    missed = Coverage.of(OffsetRange(10 * number, 10 * number + 5) for number in range(ranges))
    text = on_lines(remedy(KEY, missed, Coverage(), log_start))
    lines = [line.strip() for line in text.splitlines()]
    commands = [line for line in lines if line.startswith("kafka-replication backfill")]
    assert [line.split("--from ")[1].split()[0] for line in commands] == [str(first) for first in offered], text
    assert more in text and ("more ranges" in text) is bool(more)
    assert sum(line.startswith("kafka-replication approve-gap") for line in lines) == 1
