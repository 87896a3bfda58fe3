"""The public interface: its names, what importing it costs, and the published schemas."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from kafka_replication import api
from kafka_replication.api import documents
from kafka_replication.cli.commands import app
from stack.pages import schema
from tests.support import published_schema

ROOT = Path(__file__).parents[2]
NOT_NEEDED = {"airflow", "alembic", "confluent_kafka", "pyspark", "rich", "sqlalchemy", "typer"}
BLOCK = re.compile(r"^(?:```yaml|cat > \S+\.yaml <<'(END)')\n(.*?)^(?(1)END|```)$", re.DOTALL | re.MULTILINE)
WHOLE = {"name": "a", "source": {"connection": "s"}, "target": {"connection": "t"}, "topics": {"include": ["a"]}}


def examples() -> list[Any]:
    """The files of dags/replications, and the examples of the pages: parts of a file are put into a whole one."""
    found = [pytest.param(file.read_text(), id=file.name) for file in (ROOT / "dags/replications").glob("*.yaml")]
    for page in sorted((ROOT / "docs").glob("*.md")):
        blocks = BLOCK.finditer(page.read_text())
        found += [pytest.param(block[2], id=f"{page.stem}-{number}") for number, block in enumerate(blocks)]
    return found


def as_json(text: str) -> Any:
    """What an editor makes of the file: times stay text, and keys are text."""
    return json.loads(json.dumps(yaml.safe_load(text), default=lambda time: time.isoformat()))


def test_each_name_is_there_and_says_what_it_is() -> None:
    values = [getattr(module, name) for module in (api, documents) for name in module.__all__]
    assert [value for value in values if isinstance(value, type) and not value.__doc__] == []


def test_importing_it_needs_no_cluster_client_and_no_framework() -> None:
    program = "import json, sys, kafka_replication.api; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT / "plugins", check=True, capture_output=True)
    assert NOT_NEEDED.isdisjoint(name.split(".")[0] for name in json.loads(done.stdout))


def test_the_examples_of_the_page_can_be_called() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs/api.md").read_text(), re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {}
    exec("\n".join(blocks), names)  # noqa: S102 - our own page
    record = api.Record(key=b"DE-1", value=None, timestamp=1, source=api.Source(cluster="berlin"))
    assert names["without_tests"](record).header("copied-from") == b"berlin"
    assert names["by_country"](record, 3) == 0


def test_the_schemas_are_current() -> None:
    published = {file.name: file.read_text() for file in published_schema.FOLDER.iterdir()}
    assert published == schema.schemas(), "run: python -m stack.pages"


def test_each_command_has_a_schema() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for without_document in ("exporter", "init"):  # one serves Prometheus' format, one writes a file
        del commands[without_document]
    assert set(commands) == set(schema.COMMANDS)
    assert all(any("--json" in each.opts for each in command.params) for command in commands.values())


@pytest.mark.parametrize("text", examples())
def test_each_example_is_as_the_schema_of_files_says(text: str) -> None:
    document = as_json(text)
    published_schema.check(schema.REPLICATION, WHOLE | document)


@pytest.mark.parametrize("wrong", ["transforms: a:b", "copy: {engine: fast}", "topics: {}", "start_from: 5"])
def test_the_schema_of_files_refuses_what_the_file_would(wrong: str) -> None:
    document = WHOLE | as_json(wrong)
    with pytest.raises(AssertionError):
        published_schema.check(schema.REPLICATION, document)


def test_a_document_with_a_key_that_its_schema_does_not_have_is_noticed() -> None:
    with pytest.raises(AssertionError, match="more"):
        published_schema.check_output(["reset", "--json"], '{"replication": "a", "partitions": [], "more": 1}')
