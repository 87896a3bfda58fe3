"""The command line itself, as a user calls it."""

from __future__ import annotations

import json
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import yaml

from kafka_replication.connections import Connections
from tests.support.programs import ROOT, Program
from tests.support.published_schema import check_output
from tests.support.scenario import Scenario


class Command(Program):
    """The program under way."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], folder: Path = ROOT) -> None:
        self.arguments = arguments
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  # `communicate` closes it
        super().__init__("kafka_replication.cli", arguments, environment, folder=folder, errors=self._errors)

    def communicate(self) -> tuple[str, str]:
        """What is left of stdout, and stderr."""
        out = self.rest()
        with self._errors:
            self._errors.seek(0)
            return out, self._errors.read()


def cli(scene: Scenario, text: str, source: str, *command: str, target: str = "") -> Command:
    file = scene.folder / f"{abs(hash((text, source, target, command)))}.yaml"
    file.write_text(text)
    environment = {
        "KAFKA_REPLICATION_STORE_URL": scene.store_url,
        "AIRFLOW_CONN_SOURCE": json.dumps({"conn_type": "kafka", "extra": {"bootstrap.servers": source}}),
        "AIRFLOW_CONN_TARGET": json.dumps(
            {"conn_type": "kafka", "extra": {"bootstrap.servers": target or scene.target.bootstrap}}
        ),
    }
    return Command([command[0], str(file), *command[1:]], environment, scene.folder)


def ended(process: Command) -> tuple[int, str, str]:
    out, err = process.communicate()
    assert "Traceback" not in err + out, err
    check_output(process.arguments, out)
    return process.wait(), out, err


class Replicating(Protocol):
    """A replication that the command line can be called for."""

    @property
    def name(self) -> str: ...
    @property
    def folder(self) -> Path: ...
    @property
    def store_url(self) -> str: ...
    @property
    def connections(self) -> Connections: ...
    def document(self) -> dict[str, Any]: ...


def _line(
    scene: Replicating, arguments: Sequence[str], environment: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """The program's arguments, and what it needs in its environment. Options of the program may stand before the command."""
    file = scene.folder / f"{scene.name}.yaml"
    written = file.with_name(f"{file.name}.{threading.get_ident()}")  # commands at once must not find half a file
    written.write_text(yaml.safe_dump(scene.document()))
    written.replace(file)
    connections = {
        f"AIRFLOW_CONN_{name.upper()}": json.dumps({"conn_type": "kafka", "extra": scene.connections.kafka(name)})
        for name in ("source", "target")
    }
    first = next(number for number, argument in enumerate(arguments) if not argument.startswith("-")) + 1
    first += arguments[first - 1] in ("failed", "acls")  # its file stands behind the action
    return [*arguments[:first], str(file), *arguments[first:]], {
        **connections,
        "KAFKA_REPLICATION_STORE_URL": scene.store_url,
        **environment,
    }


def begun(scene: Replicating, *arguments: str, **environment: str) -> Command:
    return Command(*_line(scene, arguments, environment))


def command(scene: Replicating, *arguments: str, **environment: str) -> tuple[int, str, str]:
    """The command line itself: its exit code, stdout and stderr."""
    process = begun(scene, *arguments, **environment)
    out, err = process.communicate()
    check_output(arguments, out)
    return process.wait(), out, err
