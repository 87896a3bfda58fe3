"""The names of headers in stored batches: a NUL in one is found, at its offset, and damage is never passed over."""

from __future__ import annotations

import pytest

from kafka_replication.wire.header_names import with_nul
from tests.support.raw_produce import FRAME, RawRecord, raw_batch

USUAL = RawRecord(b"a\0b", b"\0" * 300, ((b"", b"\0"), (b"a", b""), (b"n" * 200, None), (b"\xff", b"a\0b")), 5)


def contents(*records: RawRecord) -> bytes:
    return raw_batch(records)[FRAME:]


@pytest.mark.parametrize("name", [b"\0", b"a\0", b"\0b", b"n" * 200 + b"\0"])
def test_a_nul_is_found_wherever_it_stands(name: bytes) -> None:
    odd = RawRecord(None, None, ((b"a", b"content"), (name, None)), -1)
    assert with_nul(contents(USUAL, odd, USUAL, odd, RawRecord()), 5) == {1, 3}


def test_a_nul_elsewhere_is_none() -> None:
    assert with_nul(contents(USUAL, RawRecord(None, None), USUAL), 3) == set()


def test_damage_is_named() -> None:
    data = contents(USUAL, USUAL)
    for length in range(len(data)):
        with pytest.raises((ValueError, IndexError)):
            with_nul(data[:length], 2)
    for count in (1, 3):
        with pytest.raises((ValueError, IndexError)):
            with_nul(data, count)
