"""The table of what goes together: the file is refused by it, and a chapter of docs/delivery.md is generated from it."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from kafka_replication.config import Replication
from kafka_replication.config.reading import parse_replication
from kafka_replication.model.choices import FUNCTION, LATEST
from kafka_replication.model.combinations import AXES, CHANGED, OWN, RULES, Axis, refusal
from kafka_replication.model.errors import ConfigError
from stack.pages.combinations import render

ROOT = Path(__file__).parents[2]
LEAST = {"name": "clicks", "source": {"connection": "a"}, "target": {"connection": "b"}, "topics": {"include": ["c"]}}
CELLS = [dict(zip(AXES, values, strict=True)) for values in itertools.product(*AXES.values())]


def written(cell: dict[Axis, str]) -> dict[str, Any]:
    """A file with these values."""
    kind = {OWN: "tests.folder_target.target:FolderTarget"}.get(cell["target.type"], cell["target.type"])
    partitioning = {FUNCTION: "shop.rules:by_country"}.get(cell["partitioning"], cell["partitioning"])
    return {
        **LEAST,
        "delivery": cell["delivery"],
        "partitioning": partitioning,
        "on_existing_target": cell["on_existing_target"],
        "copy": {"engine": cell["copy.engine"]},
        "failures": {"policy": cell["failures"]},
        "filter": "key == 'a'" if cell["pipeline"] == CHANGED else None,
        "target": {"connection": "b", "type": kind, "shape": cell["target.shape"]},
    }


def test_every_cell_is_a_replication_or_refused_by_the_rule_that_concerns_it() -> None:
    for cell in CELLS:
        if rule := refusal({axis: (value,) for axis, value in cell.items()}):
            with pytest.raises(ValidationError) as error:
                Replication.model_validate(written(cell))
            assert rule.why in str(error.value), cell
        else:
            assert refusal(Replication.model_validate(written(cell)).chosen) is None, cell


def test_the_default_of_every_axis_goes_with_everything_but_a_shape_that_a_topic_has_not() -> None:
    for axis, every in AXES.items():
        values = [value for value in every if value != LATEST]
        others = {other: every[0] for other, every in AXES.items() if other != axis}
        if axis == "target.shape":  # Kafka has one only
            others["target.type"] = "opensearch"
        assert not any(refusal({axis: (value,), **{o: (v,) for o, v in others.items()}}) for value in values)


def test_less_than_exactly_once_has_one_writer_and_unchanged_records() -> None:
    left = {tuple(cell.values())[1:] for cell in CELLS if cell["delivery"] == "leader_ack" and is_supported(cell)}
    assert left == {
        ("keep", existing, engine, "fail", "none", "kafka", "records")
        for existing in ("refuse", "append")
        for engine in AXES["copy.engine"]
    }


@pytest.mark.parametrize("kind", ["opensearch", "hbase"])
def test_a_target_of_documents_or_rows_keeps_partitions_and_has_one_writer(kind: str) -> None:
    left = {tuple(cell.values())[:3] for cell in CELLS if cell["target.type"] == kind and is_supported(cell)}
    assert left == {("exactly_once", "keep", "refuse")}
    with pytest.raises(ValidationError, match=rf"append does not go with 'target.type: {kind}'"):
        Replication.model_validate(
            {**LEAST, "target": {"connection": "b", "type": kind}, "on_existing_target": "append"}
        )


def is_supported(cell: dict[Axis, str]) -> bool:
    return refusal({axis: (value,) for axis, value in cell.items()}) is None


def test_the_error_names_line_key_reason_and_remedy() -> None:
    text = b"name: a\nsource: {connection: s}\ntarget: {connection: t}\ntopics: {include: [x]}\ndelivery: leader_ack\npartitioning: by_key\n"
    with pytest.raises(ConfigError) as error:
        parse_replication(text, "a.yaml")
    said = str(error.value)
    assert said.startswith("a.yaml:5: key 'delivery': leader_ack does not go with 'partitioning: by_key'")
    assert "only a transaction shows" in said and "write 'delivery: exactly_once', or 'partitioning: keep'" in said


def test_the_page_has_every_rule() -> None:
    page = (ROOT / "docs/delivery.md").read_text()
    assert page.endswith(render()), "run: python -m stack.pages"
    assert all(rule.why in page for rule in RULES)
