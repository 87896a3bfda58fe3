"""The command line itself, as a user calls it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import yaml

from kafka_replication.connections.port import Connections
from tests.support.scenario import Scenario

ROOT = Path(__file__).parents[2]


def cli(scene: Scenario, text: str, source: str, *command: str) -> subprocess.Popen[str]:
    file = scene.folder / f"{abs(hash((text, source, command)))}.yaml"
    file.write_text(text)
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "plugins"),
        "KAFKA_REPLICATION_STORE_URL": scene.store_url,
        "AIRFLOW_CONN_SOURCE": json.dumps({"conn_type": "kafka", "extra": {"bootstrap.servers": source}}),
        "AIRFLOW_CONN_TARGET": json.dumps(
            {"conn_type": "kafka", "extra": {"bootstrap.servers": scene.target.bootstrap}}
        ),
    }
    line = [sys.executable, "-m", "kafka_replication.cli", command[0], str(file), *command[1:]]
    return subprocess.Popen(
        line, cwd=scene.folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate()
    assert "Traceback" not in err + out, err
    return process.returncode, out, err


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


def _line(scene: Replicating, arguments: Sequence[str], environment: Mapping[str, str]) -> dict[str, Any]:
    """What `subprocess` needs to call the program. Options of the program may stand before the command."""
    file = scene.folder / f"{scene.name}.yaml"
    written = file.with_name(f"{file.name}.{threading.get_ident()}")  # commands at once must not find half a file
    written.write_text(yaml.safe_dump(scene.document()))
    written.replace(file)
    connections = {
        f"AIRFLOW_CONN_{name.upper()}": json.dumps({"conn_type": "kafka", "extra": scene.connections.kafka(name)})
        for name in ("source", "target")
    }
    first = next(number for number, argument in enumerate(arguments) if not argument.startswith("-")) + 1
    return {
        "args": [sys.executable, "-m", "kafka_replication.cli", *arguments[:first], str(file), *arguments[first:]],
        "text": True,
        "env": {
            **os.environ,
            **connections,
            "KAFKA_REPLICATION_STORE_URL": scene.store_url,
            "PYTHONPATH": f"{ROOT}/plugins:{ROOT}",
            **environment,
        },
    }


def command(scene: Replicating, *arguments: str, **environment: str) -> tuple[int, str, str]:
    """The command line itself: its exit code, stdout and stderr."""
    ended = subprocess.run(capture_output=True, check=False, **_line(scene, arguments, environment))
    return ended.returncode, ended.stdout, ended.stderr


def at_a_terminal(scene: Replicating, answer: str, *arguments: str) -> tuple[int, str, str]:
    """The same with a person at a terminal, who types ``answer``. The terminal shows stderr."""
    person, terminal = os.openpty()
    os.write(person, f"{answer}\n".encode())
    ended = subprocess.run(
        stdin=terminal, stderr=terminal, stdout=subprocess.PIPE, check=False, **_line(scene, arguments, {})
    )
    os.set_blocking(person, False)
    shown = os.read(person, 1 << 16).decode()
    os.close(terminal)
    os.close(person)
    return ended.returncode, ended.stdout, shown
