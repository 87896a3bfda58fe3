"""The first line of every command names its store; a command that only reads makes none."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kafka_replication.cli import commands as cli
from kafka_replication.store import open_store
from kafka_replication.store.connect import is_there, shown

FILE = """\
name: orders-dr
source: {connection: not_defined}
target: {connection: not_defined_either}
topics: {include: [orders]}
"""
TOPIC = ("--topic", "orders")
RANGE = ("--from", "0", "--until", "9")
READING = [
    ("check",),
    ("plan",),
    ("status",),
    ("ledger",),
    ("audit",),
    ("backfill", *TOPIC, *RANGE, "--dry-run"),
]
WRITING = [
    ("run",),
    ("verify",),
    ("backfill", *TOPIC, *RANGE),
    ("ledger", "--rebuild-store"),
    ("reset", *TOPIC, "--confirm", "orders"),
    ("approve-gap", *TOPIC, "--partition", "0", *RANGE, "--reason", "gone", "--by", "me"),
]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("KAFKA_REPLICATION_STORE_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "orders-dr.yaml").write_text(FILE)
    return tmp_path


def first_line(name: str, *options: str) -> str:
    """Of stderr. The command then ends, because the connections are not defined."""
    done = CliRunner().invoke(cli.app, [name, "orders-dr.yaml", *options])
    assert done.exit_code == 2 and "connection 'not_defined" in done.stderr
    return done.stderr.splitlines()[0]


@pytest.mark.parametrize("command", READING, ids=lambda command: command[0])
def test_a_command_that_reads_makes_no_store(here: Path, command: tuple[str, ...]) -> None:
    assert first_line(*command) == (
        "store: sqlite:///.state/store.db (the default: KAFKA_REPLICATION_STORE_URL is not set; not there: no run is"
        " known, and none is made)"
    )
    assert [path.name for path in here.iterdir()] == ["orders-dr.yaml"]


@pytest.mark.parametrize("command", WRITING, ids=lambda command: command[0])
def test_a_command_that_writes_says_that_its_store_is_new(here: Path, command: tuple[str, ...]) -> None:
    said = "store: sqlite:///.state/store.db (the default: KAFKA_REPLICATION_STORE_URL is not set"
    assert first_line(*command) == f"{said}; new)"
    assert (here / ".state" / "store.db").exists()
    assert first_line("status") == f"{said})"


def test_a_store_that_was_named_is_only_named(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{here}/named.db?timeout=5"
    open_store(url).close()
    monkeypatch.setenv("KAFKA_REPLICATION_STORE_URL", url)
    assert first_line("status") == f"store: sqlite:///{here}/named.db"


def test_a_url_is_shown_without_its_secrets() -> None:
    assert shown("postgresql+psycopg://me:secret@db:5433/stores?sslpassword=secret") == (
        "postgresql+psycopg://db:5433/stores"
    )


def test_a_folder_that_is_made_is_said(here: Path, caplog: pytest.LogCaptureFixture) -> None:
    url = f"sqlite:///{here}/tpyo/store.db"
    assert not is_there(url) and not (here / "tpyo").exists()
    with caplog.at_level(logging.WARNING):
        open_store(url).close()
    assert "tpyo did not exist and was made; is the store's url right?" in caplog.text
    assert is_there(url)
