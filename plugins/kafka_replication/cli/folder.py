"""``kafka-replication overview``, and ``status`` without a file: all replications, from the store alone."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kafka_replication.cli import terminal_progress
from kafka_replication.cli.command_frame import Json, Result, failures_told
from kafka_replication.cli.stores import store_of_command
from kafka_replication.config import Replication
from kafka_replication.config.reading.file import load_all
from kafka_replication.documents import as_json as json_of
from kafka_replication.model.errors import BadInput
from kafka_replication.overview.rows import Row, facts_of, in_order, row_of, rows
from kafka_replication.overview.shown import document, overview_table
from kafka_replication.runtime import stopping
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


@dataclass(frozen=True, slots=True)
class Selection:
    """The replications to show: those of a folder's files, or all of the store. ``broken`` are files with mistakes."""

    replications: tuple[Replication, ...] | None
    broken: tuple[str, ...] = ()

    @classmethod
    def of(cls, folder: Path | None) -> Selection:
        """Raises BadInput for a folder that is not there."""
        if folder is None:
            if not FOLDER.is_dir():
                return cls(None)
            folder = FOLDER
        if not folder.is_dir():
            raise BadInput(f"{folder}: is not a folder", "name the folder of the replication files, or nothing")
        loaded, broken = load_all(folder)
        return cls(tuple(loaded.values()), tuple(str(mistake.error) for mistake in broken))

    def rows(self, store: WatermarkStore, now: datetime) -> list[Row]:
        """One row for each, first those that need a person; also for those that the store does not know."""
        if self.replications is None:
            return rows(store, now)
        known = rows(store, now, {replication.name for replication in self.replications})
        names = {row.replication for row in known}
        unknown = (
            row_of(Seen(standing=Standing(replication=replication.name, facts=facts_of(replication))), now)
            for replication in self.replications
            if replication.name not in names
        )
        return in_order([*known, *unknown])


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
        selection = Selection.of(folder)
        with store_of_command(writes=False) as store:
            if watch:
                terminal_progress.watch(lambda: _look(Selection.of(folder), store)[1])
                raise typer.Exit(0)
            shown, text, code = _look(selection, store)
    typer.echo(json.dumps(json_of(shown), indent=2) if as_json else text)
    stopping.leave_if_asked()
    raise typer.Exit(code)


def _look(selection: Selection, store: WatermarkStore) -> Result:
    now = datetime.now(UTC)
    found = selection.rows(store, now)
    shown = document(found, selection.broken)
    text = "\n".join([overview_table(found, now), *(f"BROKEN {mistake}" for mistake in selection.broken)])
    return shown, text, 2 if selection.broken else int(bool(shown.need_person))
