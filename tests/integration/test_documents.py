"""The documents of the commands that copy nothing, on a replication with failed records. `command` compares each one with
the published schema of its command; other tests do so for the rest.
"""

from __future__ import annotations

import json

from tests.support.command_line import command
from tests.support.scenario import Scenario

COMMANDS = (
    ("check",),
    ("plan",),
    ("status",),
    ("verify",),
    ("audit",),
    ("ledger",),
    ("watch", "--once"),
    ("failed", "list"),
    ("failed", "show"),
    ("failed", "discard", "--all"),
    ("failed", "retry", "--topic", "none"),
)


def test_each_document_is_as_its_schema_says(with_failures: Scenario) -> None:
    backfill = ("backfill", "--dry-run", "--topic", with_failures.topic, "--from", "0", "--until", "60")
    for arguments in (*COMMANDS, backfill):
        code, out, err = command(with_failures, *arguments, "--json")
        assert code < 2 and isinstance(json.loads(out), dict), err
