"""docs/errors.md: of today's code, and every error finds its place there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_replication.kafka import causes, error_table
from kafka_replication.model.errors import ReplicationError
from kafka_replication.planning import obstacles
from kafka_replication.spark.jobs import FAILURES
from kafka_replication.store import error_table as store_table
from stack.pages import errors

PAGE = Path(__file__).parents[2] / "docs/errors.md"


def test_the_page_is_generated_from_the_code() -> None:
    assert PAGE.read_text() == errors.render(), "run: python -m stack.pages"


@pytest.mark.parametrize("kind", errors.kinds(), ids=lambda kind: kind.id)
def test_every_error_names_a_section_that_is_there(kind: type[ReplicationError]) -> None:
    page, _, anchor = kind("what").see.partition("#")
    assert page == "docs/errors.md" and f"\n## {anchor}\n" in PAGE.read_text()
    assert kind.__doc__


def test_where_the_documents_are_not_beside_the_package_an_error_names_no_path_that_leads_nowhere(
    tmp_path: Path,
) -> None:
    """As in an installed wheel."""
    shutil.copytree(PAGE.parents[1] / "plugins/kafka_replication", tmp_path / "kafka_replication")
    program = "from kafka_replication.model.errors import BadInput as kind; print(kind.__module__, kind('what').see)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split(maxsplit=1)[1].strip() == "bad-input in docs/errors.md of the source of kafka-replication"


def test_every_row_has_an_anchor_of_its_own() -> None:
    named = re.findall(r'<a id="([^"]+)">', PAGE.read_text())
    rows = [cause.name for cause in causes.ALL] + [row.name.lower() for row in error_table.TABLE.values()]
    rows += [row.name for row in (*store_table.TABLE, store_table.OTHER)]
    rows += [failure.name for failure in FAILURES]
    rows += [one.name for one in obstacles.ALL]
    assert sorted(named) == sorted(rows) and len(set(named)) == len(named)
