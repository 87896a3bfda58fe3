"""The pipeline of a replication: what it makes of records, how its failures are told, what its hash covers."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_replication.config import PipelineDefinition
from kafka_replication.config.sections import Policy
from kafka_replication.copying.pipeline import Pipeline, PipelineWriter, load
from kafka_replication.copying.sink import Record, RefusedAt, Screen
from kafka_replication.copying.steps import CLUSTER, OFFSET, PARTITION, TOPIC, Origin, readable
from kafka_replication.ledger.entries import FailedRecord, Ids, Receipt
from kafka_replication.ledger.placement import KafkaSegments, Placement, Segment
from kafka_replication.model.choices import Failure, FailureKind
from kafka_replication.model.errors import BadInput
from kafka_replication.model.offsets import OffsetRange
from kafka_replication.verification.digests import DIGEST_KIND, Fingerprint
from kafka_replication.verification.matching import Seen, Sent, match
from tests.support.reports import copied_in

ORIGIN = Origin("CLUSTER-A", "orders", 3)
USER = "tests.support.user_transforms"
SECRET = "4111-1111-1111-1111"


def made(record: Record, **definition: Any) -> list[Record]:
    return list(pipeline(**definition).outputs(record, ORIGIN))


def pipeline(**definition: Any) -> Pipeline:
    found = load(PipelineDefinition(**definition))
    assert found is not None
    return found


def record(offset: int = 7, key: bytes | None = b"k7", value: bytes | None = b"v", headers: Any = None) -> Record:
    return (offset, 1_700_000_000_000, key, value, headers)


def test_nothing_to_do_is_no_pipeline() -> None:
    assert load(PipelineDefinition()) is None


@pytest.mark.parametrize(
    ("content", "seen"),
    [
        (None, None),
        (b"", ""),
        (b"text", "text"),
        (b"123", "123"),
        (b"true", "true"),
        (b'"quoted"', '"quoted"'),
        (b' {"a": [1, null]}', {"a": [1, None]}),
        (b"[1]", [1]),
        (b'{"a": NaN}', '{"a": NaN}'),
        (b"{not json", "{not json"),
        (b"[" * 100_000, "[" * 100_000),
        (b"[" + b"9" * 5000 + b"]", "[" + "9" * 5000 + "]"),
        (b"\xff{}", None),
    ],
)
def test_what_a_filter_sees_of_a_value(content: bytes | None, seen: object) -> None:
    assert readable(content) == seen


def test_a_document_has_the_last_header_of_a_name() -> None:
    headers = [("a", b"1"), ("a", b"2"), ("b", None), ("c", b"\xff")]
    assert made(record(headers=headers), filter='headers == `{"a": "2", "b": null, "c": null}`')
    assert made(record(headers=headers), filter="size == `10` && partition == `3` && topic == 'orders'")


def test_provenance_is_added_for_each_replication() -> None:
    [once] = made(record(headers=[("own", b"x")]), transform=("provenance",))
    assert once[4] == [
        ("own", b"x"),
        (CLUSTER, b"CLUSTER-A"),
        (TOPIC, b"orders"),
        (PARTITION, b"3"),
        (OFFSET, b"7"),
    ]
    [twice] = pipeline(transform=("provenance",)).outputs(once, Origin("CLUSTER-B", "copies", 0))
    assert [value for name, value in twice[4] if name == CLUSTER] == [b"CLUSTER-A", b"CLUSTER-B"]


def test_what_came_from_a_cluster_is_left_out() -> None:
    [copy] = made(record(), transform=("provenance",))
    assert made(copy, exclude_from=("CLUSTER-A",)) == []
    assert made(copy, exclude_from=("CLUSTER-B",)) == [copy]
    assert made(record(headers=[("other", b"CLUSTER-A")]), exclude_from=("CLUSTER-A",)) != []


def test_a_function_makes_one_several_or_none() -> None:
    assert [one[3] for one in made(record(), transform=(f"{USER}:upper",))] == [b"V"]
    doubling = f"{USER}:doubling"
    assert [one[3] for one in made(record(key=b"k3"), transform=(doubling,))] == [b"0 of v", b"1 of v", b"2 of v"]
    assert made(record(key=b"k0"), transform=(doubling,)) == []
    both = made(record(key=b"k2"), filter="key == 'k2'", transform=(doubling, f"{USER}:upper", "provenance"))
    assert [(one[0], one[3]) for one in both] == [(7, b"0 OF V"), (7, b"1 OF V")]


def test_a_function_knows_where_a_record_was_read() -> None:
    [one] = made(record(), transform=(f"{USER}:upper", f"{USER}:ends"))
    assert one[3] == b"orders-3@7"


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("masked", b'{"x": "%s"}' % SECRET.encode(), "ValueError in user_transforms.py, line 36"),
        ("masked", SECRET.encode(), "JSONDecodeError in user_transforms.py, line 34"),
        ("wrong_type", b"v", "it returned str, which is neither a Record nor several nor None"),
        ("at_1970", b"v", "it returned a timestamp that is not above 0"),
        ("cut_name", b"v", "it returned a header whose name is not text without a NUL"),
        ("mistyped", b"v", "it returned a value that is str, not bytes"),
        ("strange_list", b"v", "it returned int in place of a Record"),
        ("late", b"v", "KeyError in user_transforms.py, line"),
    ],
)
def test_a_failure_names_function_offset_and_cause_and_nothing_of_the_record(name: str, value: bytes, why: str) -> None:
    with pytest.raises(RefusedAt) as failed:
        made(record(value=value), transform=(f"{USER}:{name}",))
    text = str(failed.value)
    assert failed.value.offset == 7
    assert f"orders-3: {USER}:{name} fails for the record at offset 7 (partition 3, digest " in text
    assert why in text
    chain: list[BaseException | None] = [failed.value, failed.value.__cause__, failed.value.__context__]
    assert all(SECRET not in repr(one) for one in chain)


def test_a_filter_that_fails_shows_nothing_of_the_record() -> None:
    with pytest.raises(RefusedAt, match=r"filter fails .*: abs\(\) takes number, and found string") as failed:
        made(record(value=SECRET.encode()), filter="abs(value) > `3`")
    assert SECRET not in str(failed.value)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("no.such.module:f", "ModuleNotFoundError"),
        (f"{USER}:nothing", "AttributeError"),
        (f"{USER}:no_function", "is not a function but a str"),
    ],
)
def test_what_cannot_be_called_is_refused(name: str, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        load(PipelineDefinition(transform=(name,)))


def test_the_hash_covers_expression_order_and_the_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "mine_hashed.py"

    def with_text(text: str) -> str:
        file.write_text(text)
        sys.modules.pop("mine_hashed", None)
        return pipeline(transform=("mine_hashed:f",)).identity.hash

    first = with_text("def f(record):\n    return record\n")
    assert with_text("def f(record):\n    return record\n") == first
    assert with_text("LIMIT = 3\ndef f(record):\n    return record\n") != first
    kinds: list[dict[str, Any]] = [
        {"filter": "`true`"},
        {"filter": "`false`"},
        {"exclude_from": ("a",)},
        {"transform": ("provenance",)},
        {"transform": (f"{USER}:upper", "provenance")},
        {"transform": ("provenance", f"{USER}:upper")},
    ]
    assert len({pipeline(**kind).identity.hash for kind in kinds}) == len(kinds)
    assert pipeline(filter="`true`", transform=("provenance",)).identity.name == "filter, provenance"


@dataclass
class Log:
    """A `RecordWriter` that takes everything, or refuses one source offset without naming it."""

    records: list[Record] = field(default_factory=list)
    refused: int | None = None
    policy: Policy = "fail"
    unwanted: frozenset[bytes | None] = frozenset()  # keys that the target does not take
    full: bool = False
    aside: list[Failure] = field(default_factory=list)

    @property
    def screen(self) -> Screen | None:
        return self._screened if self.policy != "fail" else None

    def _screened(self, record: Record) -> Failure | None:
        if record[2] not in self.unwanted:
            return None
        return Failure(record[0], FailureKind.REFUSED, "unwanted", "")

    def set_aside(self, record: Record, failure: Failure) -> None:
        assert record[0] == failure.offset
        self.aside.append(failure)

    @property
    def failures(self) -> tuple[FailedRecord, ...]:
        return ()

    def write(self, records: Sequence[Record]) -> None:
        self.records += records

    def finish(self, digest: str) -> Placement:
        if any(one[0] == self.refused for one in self.records):
            raise RefusedAt("one of them is refused", "", None, len(self.records))
        if not self.records:
            return KafkaSegments()
        last = len(self.records) - 1
        return KafkaSegments((Segment(partition=0, first=0, last=last, count=last + 1, digest=digest),))


def test_a_refusal_is_about_so_many_source_records() -> None:
    """The copier halves the number of source records that it reads, not that of their outputs."""
    piped = PipelineWriter(pipeline(transform=(f"{USER}:doubling",)), ORIGIN, Log(refused=2))
    piped.write([record(0, b"k3"), record(1, b"k0"), record(2, b"k3")])
    with pytest.raises(RefusedAt) as refused:
        piped.finish()
    assert (refused.value.offset, refused.value.among) == (None, 3)
    alone = PipelineWriter(pipeline(transform=(f"{USER}:doubling",)), ORIGIN, Log(refused=2))
    alone.write([record(2, b"k3")])
    with pytest.raises(RefusedAt) as refused:
        alone.finish()
    assert refused.value.offset == 2


def test_what_a_step_fails_on_or_the_target_does_not_take_is_set_aside_as_it_was_read() -> None:
    log = Log(policy="quarantine", unwanted=frozenset({b"k2"}))
    piped = PipelineWriter(pipeline(filter="value.n > `0`", transform=(f"{USER}:masked",)), ORIGIN, log)
    card = b'{"n": 1, "card": "1"}'
    good, filtered = (1, 5, b"k1", card, None), (2, 5, b"k1", b'{"n": 0}', None)
    unwanted, failing = (3, 5, b"k2", card, None), (4, 5, b"k1", b'{"n": 1}', None)
    piped.write([good, filtered, unwanted, failing])
    assert (piped.copied, piped.filtered, piped.written.count) == (1, 1, 1)
    assert [(failure.offset, failure.kind) for failure in log.aside] == [
        (3, FailureKind.REFUSED),
        (4, FailureKind.TRANSFORM),
    ]


steps = st.lists(st.sampled_from(["provenance", f"{USER}:upper", f"{USER}:doubling"]), max_size=3)
filters = st.sampled_from(
    [None, "!tombstone", "headers.a", "offset != `3`", "value.n > `2`", 'contains(`["1", "2"]`, key)']
)
contents = st.one_of(st.none(), st.binary(max_size=5), st.sampled_from([b"1", b"2", b'{"n": 3}']))
headers = st.none() | st.lists(
    st.tuples(st.sampled_from(["a", CLUSTER]), st.none() | st.sampled_from([b"", b"A", b"B"])), max_size=3
)
sources = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 2**40), st.sampled_from([b"1", b"2", b"30", None]), contents, headers),
    max_size=30,
)


@given(filters, steps, st.sampled_from([(), ("A",), ("A", "B")]), sources, st.integers(0, 5), st.integers(0, 60))
def test_the_arithmetic_adds_up(
    expression: str | None, names: list[str], excluded: tuple[str, ...], found: list[Any], after: int, until: int
) -> None:
    """Over any pipeline and any records, with holes between them: every offset is copied, filtered or not visible; the
    receipt is of what was written; and the audit finds that equal.
    """
    definition = PipelineDefinition(filter=expression, transform=tuple(names), exclude_from=excluded)
    if not definition:
        return
    offset, records = 0, list[Record]()
    for hole, *fields in found:
        records.append((offset + hole, *fields))
        offset += hole + 1
    range_, log = OffsetRange(0, offset + after + 1), Log()
    piped = PipelineWriter(pipeline(exclude_from=excluded, filter=expression, transform=tuple(names)), ORIGIN, log)
    for first in range(0, len(records), 7):
        piped.write(records[first : first + 7])
    placement = piped.finish()
    receipt = Receipt(
        generation=1,
        range=range_,
        count=piped.written.count,
        bytes=piped.written.bytes,
        digest=piped.written.hexdigest(),
        digest_kind=DIGEST_KIND,
        engine="record/1",
        placement=placement,
        ids=Ids("A", "s", "t"),
        run_id="r",
        time="",
        sources=piped.copied,
        filtered=piped.filtered,
    )
    written = Fingerprint()
    for one in log.records:
        written.add(*one[1:])
    assert (receipt.digest, receipt.bytes) == (written.hexdigest(), written.bytes)
    kept = {one[0] for one in log.records}
    sums = copied_in(range_, [receipt])
    assert (sums.records, sums.filtered) == (len(kept), len(records) - len(kept))
    assert (sums.written, sums.span) == (len(log.records), range_.span)
    assert sums.not_visible == range_.span - len(records)
    part = copied_in(OffsetRange(0, min(until, range_.until)), [receipt])
    assert part.records + part.filtered + part.not_visible == part.span and part.not_visible >= 0
    again = [one for source in records for one in piped.pipeline.outputs(source, ORIGIN)]
    sent, seen = (Sent(one[0], digest(one)) for one in again), (Seen(0, digest(one)) for one in log.records)
    assert match(sent, seen, ordered=True).differences() == []


def digest(record: Record) -> bytes:
    fingerprint = Fingerprint()
    fingerprint.add(*record[1:])
    return fingerprint.hash.digest()
