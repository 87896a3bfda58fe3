"""The conformance suite of record digests: every kind passes it, and it notices kinds that are broken on purpose.

`tests/unit/test_digest.py` has what is known of one kind alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import pytest

from kafka_replication.verification.digests import RECORD_DIGESTS, Fingerprint

Header = tuple[str, bytes | None]
Record = tuple[int, bytes | None, bytes | None, Sequence[Header] | None]
Kind = Callable[[], Fingerprint]

A: Record = (7, b"k", b"v", [("h", b"x")])
B: Record = (8, None, None, [])
ALIKE: dict[str, tuple[list[Record], list[Record]]] = {
    "order": ([A, B], [B, A]),
    "a record twice": ([A], [A, A]),
    "an empty record": ([], [(0, None, None, [])]),
    "the time": ([(7, b"k", b"v", [])], [(8, b"k", b"v", [])]),
    "no time": ([(-1, b"k", b"v", [])], [(0, b"k", b"v", [])]),
    "a null key": ([(7, None, b"v", [])], [(7, b"", b"v", [])]),
    "a null value": ([(7, b"k", None, [])], [(7, b"k", b"", [])]),
    "from the key to the value": ([(7, b"ab", b"c", [])], [(7, b"a", b"bc", [])]),
    "from the value to a header": ([(7, b"k", b"va", [])], [(7, b"k", b"v", [("a", b"")])]),
    "from a header's name to its value": ([(7, None, None, [("ab", b"")])], [(7, None, None, [("a", b"b")])]),
    "a null header": ([(7, None, None, [("a", None)])], [(7, None, None, [("a", b"")])]),
    "the order of headers": ([(7, None, None, [("a", b""), ("b", b"")])], [(7, None, None, [("b", b""), ("a", b"")])]),
    "a header of the next record": (
        [(7, None, None, [("h", b"")]), (7, None, None, [])],
        [(7, None, None, []), (7, None, None, [("h", b"")])],
    ),
}


def fed(kind: Kind, records: Sequence[Record]) -> Fingerprint:
    made = kind()
    for record in records:
        made.add(*record)
    return made


def check(kind: Kind) -> None:
    """Everything that verification relies on. Fails with the name of what the kind does not notice."""
    for name, (one, other) in ALIKE.items():
        assert fed(kind, one).hexdigest() != fed(kind, other).hexdigest(), name
    asked = kind()
    for record in (A, B):
        asked.add(*record)
        asked.hexdigest()  # asking in between changes nothing
    assert asked.hexdigest() == fed(kind, [A, B]).hexdigest(), "it depends on how records are batched"
    assert (asked.count, asked.bytes) == (2, len(b"k" + b"v" + b"h" + b"x")), "what was counted"
    none, empty = fed(kind, [(7, b"k", b"v", None)]), fed(kind, [(7, b"k", b"v", [])])
    assert none.hexdigest() == empty.hexdigest(), "a record without headers"


class Own:
    """A third kind, as anybody could add one."""

    def __init__(self) -> None:
        self.hash = hashlib.sha256()
        self.count = self.bytes = 0

    def add(self, timestamp: int, key: bytes | None, value: bytes | None, headers: Sequence[Header] | None) -> None:
        self.hash.update(repr((timestamp, key, value, list(headers or ()))).encode())
        self.count += 1
        parts = [key, value, *(part for name, content in headers or () for part in (name.encode(), content))]
        self.bytes += sum(len(part or b"") for part in parts)

    def hexdigest(self) -> str:
        return self.hash.hexdigest()


class WithoutTime(Own):
    def add(self, timestamp: int, key: bytes | None, value: bytes | None, headers: Sequence[Header] | None) -> None:
        super().add(0, key, value, headers)


class WithoutNull(Own):
    def add(self, timestamp: int, key: bytes | None, value: bytes | None, headers: Sequence[Header] | None) -> None:
        super().add(timestamp, key or b"", value or b"", headers)


class InAnyOrder(Own):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[str] = []

    def add(self, timestamp: int, key: bytes | None, value: bytes | None, headers: Sequence[Header] | None) -> None:
        super().add(timestamp, key, value, headers)
        self.records.append(repr((timestamp, key, value, headers)))

    def hexdigest(self) -> str:
        return "".join(sorted(self.records))


class RunTogether(Own):
    def add(self, timestamp: int, key: bytes | None, value: bytes | None, headers: Sequence[Header] | None) -> None:
        text = b"".join([repr((key is None, value is None)).encode(), key or b"", value or b""])
        super().add(timestamp, None, text, headers)


class ForgetsWhenAsked(Own):
    def hexdigest(self) -> str:
        said, self.hash = self.hash.hexdigest(), hashlib.sha256()
        return said


class Miscounting(Own):
    def add(self, timestamp: int, key: bytes | None, value: bytes | None, headers: Sequence[Header] | None) -> None:
        super().add(timestamp, key, value, headers)
        self.bytes += 1


@pytest.mark.parametrize("kind", [*RECORD_DIGESTS, "own"])
def test_a_kind_keeps_apart_what_differs(kind: str) -> None:
    check({**RECORD_DIGESTS, "own": Own}[kind])


@pytest.mark.parametrize(
    ("kind", "noticed"),
    [
        (WithoutTime, "the time"),
        (WithoutNull, "a null key"),
        (InAnyOrder, "order"),
        (RunTogether, "from the key to the value"),
        (ForgetsWhenAsked, "it depends on how records are batched"),
        (Miscounting, "what was counted"),
    ],
)
def test_a_broken_kind_is_noticed(kind: Kind, noticed: str) -> None:
    with pytest.raises(AssertionError, match=noticed):
        check(kind)
