"""What is certain to be refused is found before it is sent; what may fit is left to the broker."""

from __future__ import annotations

import json
import random
import zlib

import pytest

from kafka_replication.copying.sink import Record
from kafka_replication.kafka.quarantine import FRAMING, TargetLimits, largest_batch
from kafka_replication.model.choices import FailureKind

DICE = random.Random(5)
ROWS = [{"id": number, "price": DICE.randrange(1000), "state": DICE.choice(["new", "paid"])} for number in range(550)]
TEXT = json.dumps(ROWS).encode()
RANDOM = DICE.randbytes(50_000)


def limits(size: int, codec: str = "lz4") -> TargetLimits:
    return TargetLimits(topic="t", size=size, codec=codec)


def record(value: bytes) -> Record:
    return 7, 1_700_000_000_000, b"", value, None


@pytest.mark.parametrize(("segment", "largest"), [({}, 3_000_000), ({"segment.bytes": "1048576"}, 1_048_576)])
def test_a_batch_has_to_fit_one_segment(segment: dict[str, str], largest: int) -> None:
    assert largest_batch({"max.message.bytes": "3000000", **segment}) == largest


@pytest.mark.parametrize("codec", ["none", "lz4", "snappy", "gzip"])
def test_what_no_codec_makes_smaller_is_too_large(codec: str) -> None:
    failure = limits(40_000, codec).refusal(record(RANDOM))
    assert failure is not None and (failure.offset, failure.kind) == (7, FailureKind.TOO_LARGE)
    assert limits(len(RANDOM) + FRAMING, codec).refusal(record(RANDOM)) is None


def test_gzip_can_be_better_than_a_quick_look() -> None:
    """The client compresses with more effort than the first guess: the broker decides."""
    quick, slow = len(zlib.compress(TEXT, 1)), len(zlib.compress(TEXT, 6))
    assert quick > 1.06 * slow, "the text shows the difference"
    assert limits(slow, "gzip").refusal(record(TEXT)) is None
    assert limits(slow, "gzip").is_suspect(record(TEXT))
    assert limits(slow // 2, "gzip").refusal(record(TEXT)) is not None


def test_zstd_is_left_to_the_broker() -> None:
    assert limits(10, "zstd").refusal(record(RANDOM)) is None
    assert limits(10, "zstd").is_suspect(record(RANDOM))


def test_content_that_repeats_far_away_is_left_to_the_broker() -> None:
    """lz4 looks back further than zlib."""
    assert limits(60_000).refusal(record(RANDOM + RANDOM)) is None
