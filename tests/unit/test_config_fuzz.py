"""Whatever a file holds, reading it raises nothing but an error that names the place."""

from __future__ import annotations

import yaml
from hypothesis import given
from hypothesis import strategies as st

from kafka_replication.config import Replication
from kafka_replication.config.reading import parse_replication
from kafka_replication.model.errors import ConfigError
from tests.support.config_texts import HEAD, MINIMAL


def loads_or_complains(data: bytes) -> None:
    try:
        assert isinstance(parse_replication(data, "F"), Replication)
    except ConfigError as error:
        lines = error.what.split("\n")
        assert all(line.startswith("F:") and line.isprintable() for line in lines)


@given(st.binary(max_size=300))
def test_bytes_raise_nothing_but_config_errors(data: bytes) -> None:
    loads_or_complains(data)
    loads_or_complains(MINIMAL.encode() + data)


YAML_TEXT = st.lists(
    st.sampled_from(
        [
            *"ab:-?[]{},&*!|>'\"%@\\#~<=0 1\n\t\x85\u2028\x00",
            "\n  ",
            ": ",
            "- ",
            "---\n",
            "\\U",
            "name",
            "topics",
            "include",
            "copy",
        ]
    )
)


@given(YAML_TEXT.map("".join))
def test_texts_raise_nothing_but_config_errors(text: str) -> None:
    loads_or_complains(text.encode())
    loads_or_complains((MINIMAL + text).encode())
    loads_or_complains((HEAD + "topics: {include: [a]}\nspark: " + text).encode())


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.dates()
    | st.datetimes()
    | st.binary(max_size=20)
)
KEYS = (
    st.text()
    | st.integers()
    | st.sampled_from(
        [*Replication.model_fields, "copy", "include", "exclude", "rename", "connection", "config", "conf"]
    )
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=10
)


@given(st.dictionaries(KEYS, VALUES, max_size=6))
def test_values_raise_nothing_but_config_errors(value: dict[object, object]) -> None:
    loads_or_complains(yaml.safe_dump(value, allow_unicode=True).encode("utf-8", "surrogatepass"))


@given(st.sampled_from(sorted({*Replication.model_fields, "copy"} - {"copying"})), VALUES)
def test_any_value_of_any_key_raises_nothing_but_config_errors(key: str, value: object) -> None:
    minimal = yaml.safe_load(MINIMAL)
    loads_or_complains(yaml.safe_dump(minimal | {key: value}).encode())
