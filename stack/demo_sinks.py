"""``make demo-sinks``: topics of a real Kafka cluster, copied to a real OpenSearch and a real HBase, and compared."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

from stack import demo_data
from stack.airflow_api import PatientClient
from stack.errors import StackError
from stack.hbase_server import HBaseServer
from stack.opensearch_server import OpenSearchServer
from stack.ports import LOOPBACK

RECORDS = 20_000
ORDERS = "demo.orders"
FILES = {
    "demo-search": {
        "source": {"connection": "kafka_source"},
        "target": {"connection": "search", "type": "opensearch"},
        "topics": {"include": [ORDERS]},
    },
    "demo-rows": {
        "source": {"connection": "kafka_source"},
        "target": {"connection": "rows", "type": "hbase"},
        "topics": {"include": ["demo.customers"]},
    },
}


def connections(search: OpenSearchServer, rows: HBaseServer) -> dict[str, str]:
    """The variables of a terminal for both servers, which have been started."""
    hosts = {"search": ("opensearch", search.port), "rows": ("hbase", rows.port)}
    return {
        f"AIRFLOW_CONN_{name.upper()}": json.dumps({"conn_type": kind, "host": LOOPBACK, "port": port})
        for name, (kind, port) in hosts.items()
    }


def demo_sinks(
    console: Console, folder: Path, source: str, search: OpenSearchServer, environment: Mapping[str, str]
) -> None:
    """Produce, replicate to both targets, and compare all of it with the source. ``folder`` gets the two YAML files.

    Raises StackError unless both copies are equal to their source.
    """
    demo_data.create_topics(source)
    console.print(f"producing {RECORDS:,} records into {', '.join(demo_data.TOPICS)} on the source")
    demo_data.produce(source, int(time.time()), RECORDS)  # another run of the demo brings other records
    folder.mkdir(parents=True, exist_ok=True)
    for name, document in FILES.items():
        file = folder / f"{name}.yaml"
        file.write_text(json.dumps({"name": name, **document}, indent=2) + "\n")  # JSON is YAML
        for command in ("run", "audit"):
            _command(console, command, file, environment)
    console.print(f"a document, as a reader of {search.url}/{ORDERS} finds it:")
    console.print_json(data=_document(search))
    console.print("[green]ok[/green] both targets have what the source has")


def _command(console: Console, command: str, file: Path, environment: Mapping[str, str]) -> None:
    program = Path(sys.executable).parent / "kafka-replication"
    console.print(f"kafka-replication {command} {file}")
    if subprocess.run([program, command, file], env={**os.environ, **environment}, check=False).returncode:
        raise StackError(f"kafka-replication {command} {file} failed", "its output above names the cause")


def _document(search: OpenSearchServer) -> object:
    with PatientClient(search.url, timeout=30) as client:
        return client.get(f"/{ORDERS}/_search", params={"size": 1}).raise_for_status().json()["hits"]["hits"][0]
