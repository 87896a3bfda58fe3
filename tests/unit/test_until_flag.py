"""``--until`` of ``plan`` and ``run``: refused before a connection is looked for, with exit code 2."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kafka_replication.cli import app

FILE = """\
name: orders-dr
source: {connection: not_defined}
target: {connection: not_defined_either}
topics: {include: [orders]}
"""


@pytest.mark.parametrize("command", ["plan", "run"])
@pytest.mark.parametrize(
    ("until", "words"),
    [
        # -1 and -2 are not times to ListOffsets, but "latest" and "earliest": everything would be copied, or nothing.
        ("1969-12-31T23:59:59.999Z", "must not lie before 1970"),
        ("1970-01-01T00:59:59.998+01:00", "must not lie before 1970"),
        ("2030-01-31T06:00:00", "must say its time zone"),
        ("2030-01-31", "must be a time in RFC 3339"),
        ("20300131T060000Z", "must be a time in RFC 3339"),
        ("2030-02-30T06:00:00Z", "must be a time that exists"),
        ("9999-12-31T23:59:59-01:00", "must lie between the years 1970 and 9999"),
        ("latest", "must be a time in RFC 3339"),
        ("1234", "must be a time in RFC 3339"),
    ],
)
def test_an_until_that_is_no_time_kafka_knows_is_bad_input(
    command: str, until: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_REPLICATION_STORE_URL", f"sqlite:///{tmp_path}/store.db")
    file = tmp_path / "orders-dr.yaml"
    file.write_text(FILE)
    done = CliRunner().invoke(app, [command, str(file), "--until", until, "--json"])
    assert done.exit_code == 2
    error = json.loads(done.stdout)["error"]
    assert words in error
    assert "--until" in error and until in error
