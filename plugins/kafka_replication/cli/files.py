"""``kafka-replication init``: asks, tries both connections, and writes a replication's file that passes `check`.

``kafka-replication overview``, and ``status`` without a file: all replications, from the store alone.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml

from kafka_replication.cli import terminal_progress
from kafka_replication.cli.command_frame import Json, Result, failures_told, store_findings, store_of_command
from kafka_replication.config import Replication
from kafka_replication.config.names import TOPIC_PLACEHOLDER, is_internal
from kafka_replication.config.reading import load_all, parse_replication
from kafka_replication.connections import EnvironmentConnections, variable
from kafka_replication.documents import as_json as json_of
from kafka_replication.kafka import topics as cluster_topics
from kafka_replication.model.errors import BadInput
from kafka_replication.overview.rows import document, facts_of, in_order, overview_table, row_of, rows
from kafka_replication.reporting.table import verdict
from kafka_replication.runs import runner
from kafka_replication.runs.clusters import Clusters
from kafka_replication.runs.run import open_run
from kafka_replication.runtime import stopping
from kafka_replication.runtime.deadline import Deadline
from kafka_replication.watermarks.sight import Seen, Standing

if TYPE_CHECKING:
    from kafka_replication.store import WatermarkStore


FOLDER = Path("dags/replications")
Folder = Annotated[
    Path | None,
    typer.Argument(
        metavar="[FOLDER]",
        help=f"The folder with the replications' files; {FOLDER} if it is there, else all that the store knows.",
        show_default=False,
    ),
]
WATCH_HELP = "Show it again every 2 s, until Ctrl-C."


def _selected(folder: Path | None) -> tuple[Mapping[str, Replication] | None, tuple[str, ...]]:
    """The replications to show: those of a folder's files by name, None for all of the store; and the mistakes of other
    files. Raises BadInput for a folder that is not there.
    """
    if folder is None and not FOLDER.is_dir():
        return None, ()
    folder = folder or FOLDER
    if not folder.is_dir():
        raise BadInput(f"{folder}: is not a folder", "name the folder of the replication files, or nothing")
    loaded, broken = load_all(folder)
    return loaded, tuple(str(mistake.error) for mistake in broken)


def overview(
    folder: Folder = None,
    as_json: Json = False,
    watch: Annotated[bool, typer.Option("--watch", help=WATCH_HELP)] = False,
) -> None:
    """Show all replications, first those that need a person. Reads the store alone, and asks no cluster.

    The exit code is 1 if one of them needs a person, 2 if a file has a mistake.
    """
    show(folder, as_json=as_json, watch=watch)


def show(folder: Path | None, *, as_json: bool, watch: bool) -> None:
    """Print the rows; with ``watch`` again and again, in place."""
    if watch and as_json:
        raise typer.BadParameter("--watch shows a table: leave out --json, or call overview --json repeatedly")
    stopping.on_signals()
    with failures_told(as_json):
        selected = _selected(folder)
        with store_of_command(writes=False) as store:
            if watch:
                terminal_progress.watch(lambda: _look(store, *_selected(folder))[1])
                raise typer.Exit(0)
            shown, text, code = _look(store, *selected)
    typer.echo(json.dumps(json_of(shown), indent=2) if as_json else text)
    stopping.leave_if_asked()
    raise typer.Exit(code)


def _look(store: WatermarkStore, replications: Mapping[str, Replication] | None, broken: tuple[str, ...]) -> Result:
    """One row for each, first those that need a person; also for those that the store does not know."""
    now, named = datetime.now(UTC), replications or {}
    known = rows(store, now, None if replications is None else set(named))
    unknown = named.keys() - {row.replication for row in known}
    unseen = (Seen(standing=Standing(replication=name, facts=facts_of(named[name]))) for name in unknown)
    found = in_order([*known, *(row_of(seen, now) for seen in unseen)])
    shown = document(found, broken)
    text = "\n".join([overview_table(found, now), *(f"BROKEN {mistake}" for mistake in broken)])
    return shown, text, 2 if broken else int(bool(shown.need_person))


SHOWN = 20  # topics of the source


def _option(text: str) -> Any:
    return typer.Option(help=text, show_default=False)


def init(
    folder: Annotated[
        Path | None,
        typer.Argument(help=f"Where to write it; {FOLDER} if it is there, else this folder.", show_default=False),
    ] = None,
    name: Annotated[str | None, _option("Name of the replication, and of its file.")] = None,
    source: Annotated[str | None, _option("Id of the source's connection.")] = None,
    target: Annotated[str | None, _option("Id of the target's connection.")] = None,
    topics: Annotated[str | None, _option("Topics, or expressions that begin with ^, with spaces between.")] = None,
    rename: Annotated[str | None, _option("Names of the target topics, as in 'dr.{topic}'.")] = None,
    schedule: Annotated[str | None, _option("A cron expression in UTC; '' for only when triggered.")] = None,
    from_: Annotated[
        Path | None,
        typer.Option(
            "--from", help="Ask nothing: write a file for each flow of this mm2.properties.", show_default=False
        ),
    ] = None,
) -> None:
    """Ask for what is not given, try both connections, and write a replication's file that passes check.

    With --from: read a MirrorMaker 2 properties file instead, and name what has no equivalent. No cluster is asked.
    """
    given = {"name": name, "source": source, "target": target, "topics": topics, "rename": rename, "schedule": schedule}
    stopping.on_signals()
    folder = folder or (FOLDER if FOLDER.is_dir() else Path())
    if from_ is not None:
        if named := [option for option, value in given.items() if value is not None]:
            raise typer.BadParameter(
                f"--from asks nothing: leave out --{named[0]}, and change the files that it writes"
            )
        with failures_told():
            _from_mirrormaker(from_, folder)
        return
    with failures_told():
        path, answers = _asked(folder, given)
        text = _text(answers)
        passed = _passes(parse_replication(text.encode(), str(path)))
        if passed:
            _write(path, text)
    if not passed:
        options = " ".join(f"--{option} {shlex.quote(answer)}" for option, answer in answers.items())
        typer.echo(f"not written: mend what is named above, then: kafka-replication init {options}", err=True)
        raise typer.Exit(1)
    typer.echo(f"{text}\nwritten to {path}; next: kafka-replication plan {path}")


def _asked(folder: Path, given: Mapping[str, str | None]) -> tuple[Path, dict[str, str]]:
    """The file to write, and the answer to each option. Raises BadInput, NotAdmitted, Unreachable."""

    def answer(option: str, question: str, default: str | None = None) -> str:
        return _answer(option, given[option], question, default)

    answers = {"name": answer("name", "Name of the replication")}
    path = folder / f"{answers['name']}.yaml"
    if not folder.is_dir():
        raise BadInput(f"{folder}: is not a folder", "make it, or name another one")
    if path.exists():
        raise BadInput(f"{path}: is there already", "choose another --name, or change that file by hand")
    for side in ("source", "target"):
        answers[side] = answer(side, f"Connection of the {side}", f"kafka_{side}")
        _define(side, answers[side])
    connected = _connected(answers)
    if given["topics"] is None:
        _show_topics(connected)
    answers["topics"] = answer("topics", "Topics, or expressions that begin with ^, with spaces between them")
    is_one = cluster_topics.cluster_id(connected.source_admin) == connected.target.catalogue.cluster_id()
    answers["rename"] = answer("rename", "Names of the target topics", "copy.{topic}" if is_one else TOPIC_PLACEHOLDER)
    answers["schedule"] = answer("schedule", "Schedule in UTC, as in */15 * * * * (nothing: only when triggered)", "")
    return path, answers


def _from_mirrormaker(properties: Path, folder: Path) -> None:
    """Write a file for each flow that is enabled, none if one cannot be written. Raises BadInput."""
    from kafka_replication.config import mirrormaker  # no other command needs it

    try:
        found = mirrormaker.properties(properties.read_bytes())
    except OSError as error:
        raise BadInput(f"{properties}: cannot be read: {error.strerror}", "name MirrorMaker's file") from error
    if not folder.is_dir():
        raise BadInput(f"{folder}: is not a folder", "make it, or name another one")
    flows = mirrormaker.flows(found)
    translated = {folder / f"{flow.name}.yaml": mirrormaker.translated(flow) for flow in flows}
    for path, translation in translated.items():
        parse_replication(_yaml(translation.document).encode(), str(path))
        if path.exists():
            raise BadInput(f"{path}: is there already", "name another folder, or remove that file")
    for (path, translation), flow in zip(translated.items(), flows, strict=True):
        notes = [f"{key}: {note}" for key, note in translation.notes.items()]
        lines = [f"From {properties.name}, {flow}. Not in this file:", *(f"  {note}" for note in notes)]
        _write(path, "".join(f"# {line}\n" for line in lines) + _yaml(translation.document))
        typer.echo("\n  ".join([f"{path} ({flow}) has no place for:", *notes]), err=True)
    for alias in dict.fromkeys(alias for flow in flows for alias in (flow.source, flow.target)):
        extra, lacking = mirrormaker.connection(alias, found)
        definition = json.dumps({"conn_type": "kafka", "extra": extra})
        connection = mirrormaker.connection_id(alias)
        typer.echo(f"connection {connection} to {alias}; fill in what stands in <>:", err=True)
        typer.echo(f"  export {variable(connection)}={shlex.quote(definition)}", err=True)
        typer.echo("".join(f"  not taken over: {key}\n" for key in lacking), err=True, nl=False)
    typer.echo("\n".join(f"written to {path}; next: kafka-replication check {path}" for path in translated))


def _answer(option: str, given: str | None, question: str, default: str | None) -> str:
    """Raises BadInput if nobody answers."""
    if given is not None:
        return given
    shown = f"{question} [{default}]: " if default else f"{question}: "
    while True:
        typer.echo(shown, err=True, nl=False)
        line = sys.stdin.readline()
        if not line:
            remedy = f"give it as --{option}, or answer in a terminal"
            raise BadInput(f"init has no answer to {question!r}", remedy)
        if line.strip() or default is not None:
            return line.strip() or str(default)


def _define(side: str, connection_id: str) -> None:
    """Ask for the address of a connection that is not defined, and define it for this process."""
    if variable(connection_id) in os.environ:
        return
    question = f"{variable(connection_id)} is not set. Brokers of the {side}, as in kafka-1:9092"
    extra = {"bootstrap.servers": _answer(side, None, question, None)}
    os.environ[variable(connection_id)] = json.dumps({"conn_type": "kafka", "extra": extra})
    definition = shlex.quote(os.environ[variable(connection_id)])
    typer.echo(f"for this terminal: export {variable(connection_id)}={definition}", err=True)
    typer.echo("for Airflow, and with a login or TLS: docs/connections.md", err=True)


def _connected(answers: Mapping[str, str]) -> Clusters:
    """Both clusters. Raises BadInput, NotAdmitted, Unreachable."""
    text = _text({**answers, "topics": "^", "rename": TOPIC_PLACEHOLDER, "schedule": ""})
    clusters = Clusters(parse_replication(text.encode(), "the answers"), EnvironmentConnections(), Deadline())
    clusters.connect()
    return clusters


def _show_topics(clusters: Clusters) -> None:
    topics = [topic for topic in cluster_topics.names(clusters.source_admin) if not is_internal(topic)]
    more = f", and {len(topics) - SHOWN} more" if len(topics) > SHOWN else ""
    typer.echo(f"topics of the source: {', '.join(topics[:SHOWN]) or 'none'}{more}", err=True)


def _text(answers: Mapping[str, str]) -> str:
    """The file: what is not a default."""
    topics: dict[str, object] = {"include": re.split(r",?\s+", answers["topics"].strip())}
    if answers["rename"] != TOPIC_PLACEHOLDER:
        topics["rename"] = answers["rename"]
    document: dict[str, object] = {
        "name": answers["name"],
        "source": {"connection": answers["source"]},
        "target": {"connection": answers["target"]},
        "topics": topics,
    }
    if answers["schedule"]:
        document["schedule"] = answers["schedule"]
    return _yaml(document)


def _yaml(document: Mapping[str, object]) -> str:
    return str(yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True, width=200))


def _passes(replication: Replication) -> bool:
    """True if `check` finds no error; what it finds is shown. Raises what it raises."""
    from kafka_replication.runs import checking

    with store_of_command(writes=False) as store:
        deadline = Deadline.after(replication.timeouts.run)
        run = open_run(replication, EnvironmentConnections(), store, runner.new_run_id(), deadline, looks=True)
        found = [*store_findings(), *checking.check(run).findings]
    typer.echo("\n".join([*map(str, found), verdict(found)]), err=True)
    return not any(finding.severity == "error" for finding in found)


def _write(path: Path, text: str) -> None:
    """Write a new file. Raises BadInput."""
    try:
        with path.open("x") as file:
            file.write(text)
    except OSError as error:
        raise BadInput(
            f"{path}: cannot be written: {error.strerror}", "choose a folder that you may write to"
        ) from error
