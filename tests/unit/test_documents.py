"""A record becomes a document of OpenSearch and comes back byte for byte."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_replication.copying.sink import Record
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.opensearch.documents import Documents, NoDocument, Origin, decoded, sources

ORIGIN = Origin("orders-dr", 2, TopicPartition("shop.orders", 3))
BYTES = st.none() | st.binary(max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
OBJECT = st.dictionaries(st.text().filter(lambda name: name != "kafka"), JSON, max_size=4)
HEADERS = st.none() | st.lists(st.tuples(st.text(), BYTES), min_size=1, max_size=3)


def value(written: bytes) -> Record:
    return 7, 1_700_000_000_000, b"key", written, None


@given(
    OBJECT,
    st.sampled_from([None, 2]),
    st.booleans(),
    st.sampled_from(["", " ", "\n\t"]),
    BYTES,
    HEADERS,
    st.integers(-1),
)
def test_a_value_of_json_comes_back_as_it_was_written(
    fields: dict[str, object],
    indent: int | None,
    ascii_: bool,
    around: str,
    key: bytes | None,
    headers: list[tuple[str, bytes | None]] | None,
    timestamp: int,
) -> None:
    text = around + json.dumps(fields, indent=indent, ensure_ascii=ascii_) + around
    try:
        record: Record = (7, timestamp, key, text.encode(), headers)
    except UnicodeEncodeError:  # half of a pair of surrogates is no text
        return
    try:
        document = Documents(ORIGIN).encoded(record)
    except NoDocument:  # such a half, written as an escape
        assert ascii_ and "\\ud" in text
        return
    assert b"\n" not in document
    found = json.loads(document)
    assert found.pop("kafka")["offset"] == 7 and found == json.loads(text)
    assert decoded(document) == record


@given(BYTES, BYTES, HEADERS)
def test_any_bytes_come_back_in_base64(
    key: bytes | None, content: bytes | None, headers: list[tuple[str, bytes]]
) -> None:
    record: Record = (7, 1, key, content, headers)
    document = Documents(ORIGIN, "base64").encoded(record)
    assert b"\n" not in document and json.loads(document).keys() == {"kafka"}
    assert decoded(document) == record


@pytest.mark.parametrize(
    ("written", "why"),
    [
        (b"", "not JSON"),
        (b"order 7", "not JSON"),
        (b'{"a":1},{"b":2}', "not JSON"),
        (b'{"a":1}{', "not JSON"),
        (b'{"a":NaN}', "not JSON"),
        (b'{"a":"\xff"}', "not JSON"),
        (b"[1]", "no object: list"),
        (b"7", "no object: int"),
        (b'{"kafka": 1}', "has a field .kafka"),
        (b'{"\\u006bafka": 1}', "has a field .kafka"),
        (b'{"a": 1, "kafka.offset": 3}', "has a field .kafka.offset., and .kafka. is ours"),
    ],
)
def test_what_is_no_document_says_why(written: bytes, why: str) -> None:
    with pytest.raises(NoDocument, match=why):
        Documents(ORIGIN).encoded(value(written))


def test_a_field_of_ours_inside_of_the_value_is_the_value_s() -> None:
    record = value(b'{"a":{"kafka":{"offset":9}}}')
    assert decoded(Documents(ORIGIN).encoded(record)) == record
    assert decoded(Documents(ORIGIN).encoded((7, 1, b'"kafka":{', b"{}", None)))[2] == b'"kafka":{'


def test_ids_of_different_records_differ() -> None:
    others = [Origin("other", 2, ORIGIN.source), ORIGIN]
    assert len({origin.id(7) for origin in others}) == 1, "a replication has its own index"
    ids = {
        Origin("r", generation, TopicPartition(topic, partition)).id(offset)
        for generation in (1, 11)
        for topic in ("t", "t-1")
        for partition in (1, 11)
        for offset in (1, 11)
    }
    assert len(ids) == 16


def test_documents_are_cut_out_of_an_answer_as_they_are() -> None:
    one, two = '{"_id":"no", "_source":{"x":1}}', '{"a" :  1.0e3,"b":"\\"_id\\":"}'
    hits = ",".join(f'{{"_index":"i","_id":"{n}","_source":{text},"sort":[{n}]}}' for n, text in enumerate((one, two)))
    found, rest = sources(f'{{"took":1,"hits":{{"hits":[{hits}]}},"profile":{{}}}}')
    assert found == [("0", one.encode()), ("1", two.encode())]
    [last] = rest["hits"]["hits"]
    assert (rest["took"], rest["profile"], last["sort"]) == (1, {}, [1])
    assert sources('{"hits":{"hits":[]}}') == ([], {"hits": {"hits": []}})
    for cut in range(len(hits)):
        with pytest.raises(ValueError, match=r"\w"):
            sources(f'{{"took":1,"hits":{{"hits":[{hits}]}}}}'[: -4 - cut])
