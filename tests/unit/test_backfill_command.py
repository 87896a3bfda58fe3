"""``kafka-replication backfill``: what its flags may not say ends with exit code 2, before a connection is even looked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kafka_replication.cli import commands as cli
from kafka_replication.cli import terminal_progress
from tests.support.jobs import no_launch

FILE = """\
name: orders-dr
source: {connection: not_defined}
target: {connection: not_defined_either}
topics: {include: [orders]}
"""
GOOD = {"--topic": "orders", "--from": "10", "--until": "20"}


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(terminal_progress, "launcher_for", lambda *_: no_launch)
    monkeypatch.setenv("KAFKA_REPLICATION_STORE_URL", f"sqlite:///{tmp_path}/store.db")
    path = tmp_path / "orders-dr.yaml"
    path.write_text(FILE)
    return path


def call(file: Path, flags: dict[str, str], *more: str) -> tuple[int, str, str]:
    arguments = [part for flag, value in flags.items() for part in (flag, value)]
    done = CliRunner().invoke(cli.app, ["backfill", str(file), *arguments, *more])
    return done.exit_code, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("flag", "value", "words"),
    [
        ("--from", "30", "from (30) is greater than until (20)"),
        ("--from", "20", "the range is empty"),
        ("--from", "-5", "must not be negative"),
        ("--until", "9223372036854775808", "is larger than any offset"),
        ("--until", "99999999999999999999999", "is larger than any offset"),
        ("--from", "ten", "from: must be an offset"),
        ("--from", "", "from: must be an offset"),
        ("--from", "10 ", "from: must be an offset"),
        ("--from", "1e1", "from: must be an offset"),
        ("--from", "0x1", "from: must be an offset"),
        ("--from", "1.0", "from: must be an offset"),
        ("--from", "latest", "from: must be an offset"),
        ("--until", "earliest", "until: must be an offset"),
        ("--from", "{{ ds }}", "found '{{ ds }}'"),
        ("--from", "{% raw %}", "found '{% raw %}'"),
        ("--until", "$(reboot)", "found '$(reboot)'"),
        ("--until", "20; reboot", "until: must be an offset"),
        ("--until", "20|cat", "until: must be an offset"),
        ("--until", "../../etc/passwd", "until: must be an offset"),
        ("--from", "2024-01-31", "from: must be an offset"),
        ("--from", "2024-01-31T06:00:00", "must say its time zone"),
        ("--from", "2024-02-30T06:00:00Z", "must be a time that exists"),
        ("--from", "1960-01-31T06:00:00Z", "must not lie before 1970"),
        ("--from", "9998-01-31T06:00:00Z", "lies in the future"),
        ("--topic", "payments", "is not a topic of replication orders-dr"),
        ("--topic", "$(reboot)", "is no topic name to Kafka"),
        ("--topic", "", "is no topic name to Kafka"),
        ("--topic", "{{ var.value.x }}", "is no topic name to Kafka"),
        ("--partition", "-1", "partition: must be a whole number"),
        ("--partition", "2147483648", "partition: must be a whole number"),
        ("--partition", "all", "partition: must be a whole number"),
        ("--target-topic", "a b", "is no topic name to Kafka"),
        ("--target-topic", "kafka-replication.receipts", "which belongs to the ledger"),
        ("--target-topic", "__transaction_state", "is an internal topic of Kafka"),
    ],
)
def test_a_hostile_flag_is_refused_in_words_with_exit_code_2(file: Path, flag: str, value: str, words: str) -> None:
    flags = {**GOOD, flag: value}
    for more in ((), ("--dry-run",)):
        code, out, err = call(file, flags, *more)
        assert (code, out) == (2, "")
        assert words in err and "remedy: " in err
    code, out, _ = call(file, flags, "--json")
    assert (code, json.loads(out)["outcome"]) == (2, "failed")
    assert words in json.loads(out)["error"]


@pytest.mark.parametrize("missing", list(GOOD))
def test_a_range_is_not_optional(file: Path, missing: str) -> None:
    code, _, err = call(file, {flag: value for flag, value in GOOD.items() if flag != missing})
    assert code == 2 and missing in err


@pytest.mark.parametrize("flags", [GOOD, {**GOOD, "--from": "earliest", "--until": "latest"}])
def test_with_good_flags_it_goes_on_to_the_connections(file: Path, flags: dict[str, str]) -> None:
    code, _, err = call(file, flags, "--dry-run")
    assert code == 2 and "connection 'not_defined' is not defined" in err
