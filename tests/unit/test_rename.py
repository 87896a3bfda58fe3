"""Names of target topics, by a template or by a mapping."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from kafka_replication.config import Replication
from kafka_replication.ledger.entries import Ids, Position
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.offsets import PartitionKey, TopicPartition
from kafka_replication.planning import preflight
from kafka_replication.planning.live import plan
from tests.support.preflight_worlds import SOURCE, TARGET, replication, sides, topic

EVERY = ["^.*"]


def renaming(rename: Any, include: list[str] = EVERY) -> Replication:
    return replication(topics={"include": include, "rename": rename})


@pytest.mark.parametrize(
    ("rename", "source", "target"),
    [
        ({"^old[.](.*)$": r"new.\1"}, "old.orders", "new.orders"),
        ({"^old[.]": "new."}, "old.orders", "new.orders"),
        ({"^old[.]": "new."}, "an.old.orders", "an.old.orders"),
        ({"^": "alias."}, "orders", "alias.orders"),
        ({"^(a)?(b)?": r"\2x"}, "a-topic", "x-topic"),
        ({"orders": "sales"}, "orders", "sales"),
        ({"orders": "sales"}, "orders.old", "orders.old"),
        ({"orders": "sales", "^o": "p"}, "orders", "sales"),
        ({"^o": "p", "orders": "sales"}, "orders", "prders"),
        ("source.{topic}", "orders", "source.orders"),
    ],
)
def test_the_first_entry_that_matches_gives_the_name(rename: Any, source: str, target: str) -> None:
    assert renaming(rename).target_name(source) == target
    again = Replication.model_validate_json(renaming(rename).model_dump_json())
    assert again.target_name(source) == target, "a job carries the file"


@pytest.mark.parametrize(
    ("rename", "said"),
    [
        ({"^old(": "new"}, "not a regular expression"),
        ({"^old": r"\1"}, "invalid group reference 1"),
        ({"^old": r"\g<name>"}, "unknown group name"),
        ({"orders": "a b"}, "no topic name"),
        ({"orders": "kafka-replication.x"}, "belongs to the ledger"),
        ({"old.*": "new"}, "must start with"),
        ({"orders": 5}, "Input should be a valid"),
        ({"orders": "sales.{yyyy}"}, "cannot have a date"),
        (5, "Input should be a valid"),
    ],
)
def test_a_mapping_that_cannot_be_meant_is_refused(rename: Any, said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        renaming(rename)


def test_two_named_topics_with_one_target_are_refused_with_the_file() -> None:
    with pytest.raises(ValidationError, match="'a1' and 'a2' would both be written to 'a'"):
        renaming({"^a.*": "a"}, include=["a1", "a2", "b"])


def test_two_topics_of_a_pattern_with_one_target_are_refused_alone() -> None:
    source = {name: topic(name, SOURCE) for name in ("a1", "a2", "b")}
    found = preflight.unfit(renaming({"^a.*": "a"}), sides(source, {"b": topic("b", TARGET)}))
    assert found.keys() == {"a1", "a2"}
    assert "a2 would be written to a, too" in found["a1"].what and "topics.rename" in found["a1"].remedy


def test_a_target_that_another_topic_was_copied_to_is_refused() -> None:
    """A run of one topic alone does not see the other one, the ledger does."""
    target = topic("a", TARGET)
    key = PartitionKey("orders-dr", TopicPartition("a1", 0), "a")
    before = Position(generation=1, ids=Ids("SRC", "id-a1", target.topic_id), start=0, next_offset=9)
    snapshot = replace(sides({"a2": topic("a2", SOURCE)}, {"a": target}), only=frozenset({"a2"}))
    made = plan(renaming({"^a.*": "a"}), snapshot, LedgerView({key: before}), {})
    refused = {each.key.source.topic: each.what for each in made.refused}
    assert "belongs to the replication orders-dr, which copies a1 to it" in refused["a2"]


def test_the_order_of_a_mapping_is_a_part_of_what_a_plan_was_made_with() -> None:
    one, other = renaming({"^a": "b", "^ab": "c"}), renaming({"^ab": "c", "^a": "b"})
    assert one.planned_with != other.planned_with
    assert renaming("{topic}").planned_with.keys().isdisjoint({"topics"})
