"""What the command line says about itself, and about arguments that it cannot use."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import kafka_replication
from kafka_replication.cli import app

# As a person needs them; the commands for lost records come last.
ORDER = (
    "init",
    "check",
    "plan",
    "run",
    "status",
    "overview",
    "watch",
    "exporter",
    "backfill",
    "verify",
    "audit",
    "ledger",
    "certify",
    "adopt",
    "drill",
    "cutover",
    "failover",
    "failback",
    "failed",
    "groups",
    "acls",
    "approve-gap",
    "reset",
)
FILE = "name: orders-dr\nsource: {connection: a}\ntarget: {connection: b}\ntopics: {include: [orders]}\n"


def said(*arguments: str) -> str:
    done = CliRunner().invoke(app, list(arguments), terminal_width=200)
    assert done.exit_code == 0, done.stderr
    return done.stdout


def test_the_version() -> None:
    assert said("--version") == f"kafka-replication {kafka_replication.__version__}\n"


def test_help_has_the_commands_in_the_order_of_their_use() -> None:
    text = said("--help")
    places = [text.index(f"│ {name} ") for name in ORDER]
    assert places == sorted(places)
    assert {command.name for command in app.registered_commands} == {*ORDER}


def test_no_default_is_the_largest_offset() -> None:
    assert str(2**63 - 1) not in said("audit", "--help")


@pytest.mark.parametrize("command", ["plan", "run"])
def test_a_topic_that_the_file_does_not_select_is_bad_input(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_REPLICATION_STORE_URL", f"sqlite:///{tmp_path}/store.db")
    for name in ("A", "B"):
        monkeypatch.setenv(
            f"AIRFLOW_CONN_{name}", '{"conn_type": "kafka", "extra": {"bootstrap.servers": "127.0.0.1:1"}}'
        )
    file = tmp_path / "orders-dr.yaml"
    file.write_text(FILE)
    done = CliRunner().invoke(app, [command, str(file), "--topic", "nope"])
    assert done.exit_code == 2
    assert "topic: 'nope' is not a topic of replication orders-dr: topics.include selects orders" in done.stderr
