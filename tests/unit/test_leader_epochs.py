"""A log that an unclean election cut while it was read: what was read is not sent on to the target."""

from __future__ import annotations

import pytest

from kafka_replication.config import Copy
from kafka_replication.copying.engine import HandOver
from kafka_replication.kafka import batch_engine
from kafka_replication.kafka.batch_engine import BatchReader
from kafka_replication.wire import fetching
from tests.support.simulated_copy import task


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> BatchReader:
    """The leader epochs 4 to 6 of its source end at these offsets."""
    ends = {4: 80, 5: 100, 6: None}

    class Leader:
        def __enter__(self) -> None: ...
        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(batch_engine, "connect", lambda *_: Leader())
    monkeypatch.setattr(fetching, "end_of_epoch", lambda leader, topic, partition, epoch: ends[epoch])
    return BatchReader(task(0, 200), {}, Copy())


def test_records_of_a_later_leader_follow(reader: BatchReader) -> None:
    for epoch, until in ((4, 70), (4, 80), (5, 90), (5, 100), (6, 110), (6, 300)):
        reader.is_at(epoch, until)


@pytest.mark.parametrize(
    "read", [[(4, 81), (5, 90)], [(4, 70), (4, 90), (6, 110)], [(6, 110), (7, 120)]], ids=["cut", "later", "untold"]
)
def test_records_that_were_cut_off_are_for_the_other_engine(reader: BatchReader, read: list[tuple[int, int]]) -> None:
    *before, last = read
    for epoch, until in before:
        reader.is_at(epoch, until)
    with pytest.raises(HandOver, match=r"the leader epoch \d of the source now ends at"):
        reader.is_at(*last)
