"""The expression of `filter`: what is refused when the file is read, and what it says of a record."""

from __future__ import annotations

import pytest

from kafka_replication.config.expression import FIELDS, parse, reason
from kafka_replication.config.reading import parse_replication
from kafka_replication.copying.steps import DOCUMENT
from kafka_replication.model.errors import ConfigError

REFUSED = {
    "": "must not be empty",
    "headers.type ==": "it ends too early",
    "headers.type = 'a'": "at character",
    "headers..type": "unexpected '.' at character 9",
    "header.type == 'a'": "a record has no 'header', did you mean 'headers'?",
    "value.a && vlaue.b": "did you mean 'value'?",
    "@.vlaue": "did you mean 'value'?",
    "{a: headres}.a": "did you mean 'headers'?",
    "start_with(key, 'a')": "there is no function 'start_with', did you mean 'starts_with'?",
    "starts_with(key)": "starts_with() takes 2 arguments, and is given 1",
    "timestamp > time('yesterday')": "must be a time in RFC 3339",
    "key != null": "the value is written in backticks: `null`",
    "!value.a": "! binds stronger than a dot",
    "!headers.a && key == 'b'": "! binds stronger than a dot",
    "(" * 3000 + "key" + ")" * 3000: "nested too deeply",
    "key " * 3000: "at most 10000 characters",
}
USES = {
    "headers.type == 'a'": {"headers"},
    "value.headers.key": {"value"},
    "contains(keys(@), 'key')": set(FIELDS),
    "@ | key": set(FIELDS),
    "*": set(FIELDS),
    "value.items[?price > `3`].name | [0]": {"value"},
    "[key, value][0]": {"key", "value"},
    "sort_by(value.items, &price)[0].name == 'a'": {"value"},
    "`true`": set(),
    "value.list[1:3]": {"value"},
    "timestamp >= time('2030-01-01T00:00:00Z') && !tombstone": {"timestamp", "tombstone"},
}
KEPT = {
    "headers.type == 'order'": True,
    "headers.other == 'order'": False,  # null: there is none
    "headers.type != 'test'": True,
    "value.amount > `10`": True,
    "value.amount > `20`": False,
    "value.nothing > `20`": False,  # null
    "value.amount": True,
    "value.zero": True,  # a number is never empty
    "value.empty": False,
    "value.no": False,
    "!(value.nothing)": True,
    "value.list[?@ == 'b']": True,
    "value.list[?@ == 'z']": False,
    'value."od-d".x == `1`': True,
    "timestamp == time('1970-01-01T00:00:01Z')": True,
    "`false`": False,
}
RECORD = {
    "headers": {"type": "order"},
    "value": {"amount": 15, "zero": 0, "empty": "", "no": False, "list": ["a", "b"], "od-d": {"x": 1}},
    "timestamp": 1000,
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_can_never_be_right_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".") as refused:
        parse(text)
    assert REFUSED[text] in str(refused.value)


@pytest.mark.parametrize("text", USES)
def test_only_what_is_used_is_made(text: str) -> None:
    assert parse(text).uses == USES[text]


def test_every_field_can_be_made() -> None:
    assert tuple(DOCUMENT) == FIELDS


@pytest.mark.parametrize("text", KEPT)
def test_what_stays(text: str) -> None:
    assert parse(text).keeps(RECORD) is KEPT[text]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("starts_with(key, 'a')", "starts_with() takes string, and found null"),
        ("value > headers.type", "it compares values of different types"),
        ("time(key) > `3`", "time() takes string, and found null"),
        ("time(headers.type) > `3`", "ValueError"),
    ],
)
def test_a_reason_shows_nothing_of_the_record(text: str, why: str) -> None:
    with pytest.raises((ValueError, TypeError)) as failed:
        parse(text).keeps({"key": None, "value": 12, "headers": {"type": "SECRET"}})
    assert reason(failed.value) == why


def test_the_file_names_line_and_key() -> None:
    file = (
        b"name: a\nsource: {connection: a}\ntarget: {connection: b}\ntopics: {include: [t]}\nfilter: headr.x == 'a'\n"
    )
    with pytest.raises(ConfigError, match=r"f.yaml:5: key 'filter': a record has no 'headr', did you mean 'headers'\?"):
        parse_replication(file, "f.yaml")
