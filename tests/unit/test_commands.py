"""Commands that are given to paste."""

from __future__ import annotations

from kafka_replication.model.commands import approve_gap, backfill, failed_list, on_lines, with_file
from kafka_replication.model.offsets import OffsetRange, PartitionKey, TopicPartition

KEY = PartitionKey("orders-dr", TopicPartition("orders", 1), "orders")
RANGE = OffsetRange(3, 9)


def test_a_command_names_the_file_that_was_read() -> None:
    told = f"copy them: {backfill(KEY, RANGE)}, or {approve_gap(KEY, RANGE)}"
    for file, shown in (("/etc/kr/a.yaml", "/etc/kr/a.yaml"), ("my files/o.yml", "'my files/o.yml'")):
        found = with_file(told, "orders-dr", file)
        assert f"kafka-replication backfill {shown} --topic" in found
        assert f"kafka-replication approve-gap {shown} --topic" in found
        assert found.replace(shown, "orders-dr.yaml") == told
    assert with_file(told, "other", "a.yaml") == with_file(told, "dr", "a.yaml") == told


def test_each_command_of_a_remedy_has_a_line_of_its_own() -> None:
    told = f"copy them, first with --dry-run: {backfill(KEY, RANGE)}; or accept it: {approve_gap(KEY, RANGE)}"
    lines = on_lines(told).splitlines()
    assert [line.strip() for line in lines] == [
        "copy them, first with --dry-run:",
        backfill(KEY, RANGE),
        "or accept it:",
        approve_gap(KEY, RANGE),
    ]
    assert on_lines("run again") == "run again"
    assert (
        with_file(failed_list("orders-dr"), "orders-dr", "/etc/a.yaml") == "kafka-replication failed list /etc/a.yaml"
    )


def test_so_do_the_texts_of_a_document() -> None:
    document = {"ranges": [{"remedy": backfill(KEY, RANGE), "from": 3, "error": None}], "ok": False}
    found = with_file(document, "orders-dr", "a.yaml")
    assert found == {
        "ranges": [{"remedy": with_file(backfill(KEY, RANGE), "orders-dr", "a.yaml"), "from": 3, "error": None}],
        "ok": False,
    }
