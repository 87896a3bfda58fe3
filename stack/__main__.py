"""``python -m stack up|demo|demo-sinks|down|status``: two Kafka clusters and Airflow here, all state in one folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from confluent_kafka import KafkaException
from rich.console import Console
from rich.text import Text

from stack.airflow_standalone import USER, AirflowSettings, AirflowStandalone
from stack.artifacts import kafka_jars
from stack.demo import demo as run_demo
from stack.demo_data import create_topic
from stack.demo_sinks import connections, demo_sinks
from stack.errors import StackError
from stack.folders import state_folder
from stack.hbase_server import HBaseServer
from stack.kafka_cluster import KafkaCluster, start_all, stop_all
from stack.opensearch_server import OpenSearchServer
from stack.terminal import exports, variables

SOURCE_PORT = "KAFKA_REPLICATION_SOURCE_PORT"
TARGET_PORT = "KAFKA_REPLICATION_TARGET_PORT"
AIRFLOW_PORT = "KAFKA_REPLICATION_AIRFLOW_PORT"

app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__)
console = Console(soft_wrap=True, highlight=False)
errors = Console(soft_wrap=True, highlight=False, stderr=True)
NoAirflow = Annotated[bool, typer.Option("--no-airflow", help="Only the two Kafka clusters.")]


class Stack:
    """The parts of the default stack in the state folder."""

    def __init__(self) -> None:
        self.folder = state_folder()
        self.source = KafkaCluster("source", self.folder, ports=_ports(SOURCE_PORT))
        self.target = KafkaCluster("target", self.folder, ports=_ports(TARGET_PORT))
        self.search, self.rows = OpenSearchServer("opensearch", self.folder), HBaseServer("hbase", self.folder)
        self.store_url = f"sqlite:///{self.folder / 'watermarks.db'}"

    @property
    def clusters(self) -> tuple[KafkaCluster, KafkaCluster]:
        return self.source, self.target

    @property
    def settings(self) -> AirflowSettings | None:
        """Where the clusters are; None if they were never started."""
        known = all(cluster.brokers for cluster in self.clusters)
        return AirflowSettings(self.source.bootstrap, self.target.bootstrap, self.store_url) if known else None

    def airflow(self) -> AirflowStandalone:
        """Airflow, told where the clusters are if they are known."""
        return AirflowStandalone(self.folder, self.settings, port=next(iter(_ports(AIRFLOW_PORT) or ()), None))


@app.command()
def up(no_airflow: NoAirflow = False) -> None:
    """Start what does not run yet, and say where everything is."""
    stack = Stack()
    stack.folder.mkdir(parents=True, exist_ok=True)
    kafka_jars(say=console.print)  # which shows how far it is, where there is something to fetch
    console.print("[green]ok[/green] Kafka's jars")
    with _step("two Kafka clusters"):
        start_all(stack.clusters)
    if not no_airflow:
        with _step("Airflow (10 to 30 s)"):
            stack.airflow().start()
    _print_status(stack)


@app.command()
def demo() -> None:
    """Start everything, replicate the demo's topics twice, and show what happened."""
    up()
    stack = Stack()
    with stack.airflow().api() as api:
        run_demo(console, stack.source.bootstrap, api)
    _print_status(stack)
    console.print(
        f"Open {stack.airflow().url} (user {USER}, password {stack.airflow().password}); make down stops it all."
    )


@app.command("demo-sinks")
def other_targets() -> None:
    """Copy topics of the demo to OpenSearch and to HBase, and compare them with the source."""
    up(no_airflow=True)
    stack = Stack()
    for server, what in ((stack.search, "OpenSearch"), (stack.rows, "HBase")):
        with _step(f"{what} (10 to 60 s; its jars are fetched at the first time)"):
            server.start()
    assert stack.settings is not None  # the clusters run
    environment = {**variables(stack.settings), **connections(stack.search, stack.rows)}
    demo_sinks(console, stack.folder / "sinks", stack.source.bootstrap, stack.search, environment)
    console.print(f"{stack.search}; {stack.rows}: its Thrift2 gateway. make down stops it all.")


@app.command()
def down() -> None:
    """Stop everything; the data stays for the next start."""
    stack = Stack()
    stops = [stack.airflow().stop, lambda: stop_all(stack.clusters)]
    stops += [stack.search.stop] if stack.search.process else []
    stops += [stack.rows.stop] if stack.rows.pids else []
    failures = [failure for stop in stops if (failure := _attempt(stop)) is not None]
    if failures:
        raise failures[0]
    console.print(f"Nothing runs any more. Data and logs stay in {stack.folder}; make up brings them back.")


@app.command()
def status() -> None:
    """Say what runs, and where. Exit code 0 if all of it does, else 1."""
    raise typer.Exit(0 if _print_status(Stack()) else 1)


@app.command()
def topic(name: str, partitions: int = 1) -> None:
    """Create a topic on the source cluster, if it is missing."""
    settings = Stack().settings
    if settings is None:
        raise StackError("the clusters were never started", "run make up first")
    create_topic(settings.source, name, partitions)
    console.print(f"The source at {settings.source} has the topic {name}.")


@app.command()
def env() -> None:
    """Print what a terminal needs: eval "$(make -s env)"."""
    settings = Stack().settings
    if settings is None:
        raise StackError("the clusters were never started", "run make up first")
    typer.echo("\n".join(exports(settings)))


def _print_status(stack: Stack) -> bool:
    """Print where everything is; whether all of it runs."""
    rows = []
    for cluster in stack.clusters:
        where = cluster.bootstrap if cluster.brokers else "never started"
        rows.append((f"Kafka {cluster.name}", _state(cluster.running), where))
        rows += [("", f"pid {broker.pid or '-'}", f"log {broker.log}") for broker in cluster.brokers]
    airflow = stack.airflow()
    healthy = airflow.healthy
    if healthy:
        rows.append(("Airflow", _state(True), airflow.url))
        rows.append(("", f"user {USER}", f"password {airflow.password}"))
    else:
        rows.append(("Airflow", "not healthy" if airflow.process else _state(False), ""))
    if airflow.process:
        rows.append(("", f"pid {airflow.process.pid}", f"log {airflow.log}"))
    if stack.search.process:
        rows.append(("OpenSearch", _state(True), stack.search.url))
        rows.append(("", f"pid {stack.search.process.pid}", f"log {stack.search.log}"))
    if pids := stack.rows.pids:
        rows.append(("HBase", _state(True), f"Thrift2 gateway at port {stack.rows.port}"))
        rows.append(("", "pids " + ", ".join(map(str, pids)), f"logs in {stack.rows.folder}"))
    rows.append(("Watermark store", "", stack.store_url))
    for name, state, where in rows:  # not a table: its cells are cut in a narrow terminal
        shown = Text.from_markup(state)
        shown.pad_right(11 - len(shown))
        console.print(f"{name:15}", shown, Text(where))
    if settings := stack.settings:
        console.print('For kafka-replication in this terminal paste eval "$(make -s env)", or:')
        typer.echo("\n".join(exports(settings)))
    console.print("Stop it with make down.")
    return healthy and all(cluster.running for cluster in stack.clusters)


def _state(running: bool) -> str:
    return "[green]running[/green]" if running else "[red]stopped[/red]"


def _ports(variable: str) -> list[int] | None:
    """The port that an environment variable asks for, or None."""
    text = os.environ.get(variable, "")
    if text and not (text.isdecimal() and 0 < int(text) < 65536):
        raise StackError(f"{variable}={text} is not a port", "give a number from 1 to 65535, or unset it")
    return [int(text)] if text else None


def _attempt(stop: Callable[[], None]) -> StackError | None:
    try:
        stop()
    except StackError as error:
        return error
    return None


@contextmanager
def _step(what: str) -> Iterator[None]:
    with console.status(f"starting {what} ..."):
        yield
    console.print(f"[green]ok[/green] {what}")


def main() -> None:
    """Run a command; an error that was foreseen is shown as text, without a traceback."""
    try:
        app()
    except StackError as error:
        errors.print(str(error), style="red", markup=False)
        sys.exit(1)
    except KafkaException as error:
        errors.print(
            f"Kafka: {error.args[0]}; python -m stack status says what runs and where its logs are",
            style="red",
            markup=False,
        )
        sys.exit(1)


if __name__ == "__main__":
    main()
