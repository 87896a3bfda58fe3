"""The memory of open causes. The watermark store implements it; a file stands in while the store cannot be used."""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from pydantic import ValidationError

from kafka_replication.alerting.values import Alert, Decide, Decision, OpenCause, confirmed
from kafka_replication.model.errors import BadInput
from kafka_replication.runtime.private_json import deferred

STATE_FOLDER = "KAFKA_REPLICATION_STATE_FOLDER"
_OPEN = deferred(tuple[OpenCause, ...])


@dataclass(frozen=True, slots=True)
class Look:
    """The time when Airflow's watch looked last. ``paused``: the schedule was switched off then."""

    at: datetime
    paused: bool


class AlertMemory(Protocol):
    """Remembers the open causes of each replication. Any number of processes may use it at once."""

    def open_causes(self, replication: str) -> Sequence[OpenCause]: ...

    def update_causes(self, replication: str, decide: Decide) -> Decision:
        """Call ``decide`` with the open causes and the time, and remember its result, in one transaction.

        ``decide`` may be called more than once.
        """

    def confirm_alerts(self, replication: str, sent: Collection[Alert]) -> None:
        """Remember that these alerts were sent; see `values.confirmed`."""


class FileMemory:
    """`AlertMemory` in one file for each replication, for the processes of one user on one host.

    ``folder`` is KAFKA_REPLICATION_STATE_FOLDER, or else a folder of this user in the temporary folder. A file that
    cannot be read counts as empty.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or _default_folder()

    def open_causes(self, replication: str) -> Sequence[OpenCause]:
        """The open causes. Creates no folder and no file."""
        return _read(self._file(replication))

    def update_causes(self, replication: str, decide: Decide) -> Decision:
        with self._locked(replication) as file:
            decision = decide(_read(file), datetime.now(UTC))
            _write(file, decision.open)
        return decision

    def confirm_alerts(self, replication: str, sent: Collection[Alert]) -> None:
        with self._locked(replication) as file:
            _write(file, confirmed(_read(file), sent, datetime.now(UTC)))

    def _file(self, replication: str) -> Path:
        return self._folder / f"alerts-{hashlib.sha256(replication.encode()).hexdigest()[:32]}.json"

    @contextmanager
    def _locked(self, replication: str) -> Iterator[Path]:
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self._folder.stat().st_uid != os.getuid():
                raise BadInput(
                    f"the folder {self._folder} belongs to another user", f"name a folder of yours in {STATE_FOLDER}"
                )
            file = self._file(replication)
            with file.with_suffix(".lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield file
        except OSError as e:
            raise BadInput(
                f"open alerts cannot be remembered in {self._folder}: {e.strerror}",
                f"name a folder that this user may write in {STATE_FOLDER}",
            ) from e


def _default_folder() -> Path:
    named = os.environ.get(STATE_FOLDER)
    return Path(named) if named else Path(tempfile.gettempdir()) / f"kafka-replication-{os.getuid()}"


def _read(file: Path) -> tuple[OpenCause, ...]:
    try:
        return _OPEN.validate_json(file.read_bytes())
    except (OSError, ValidationError):
        return ()


def _write(file: Path, open_: tuple[OpenCause, ...]) -> None:
    if not open_:
        file.unlink(missing_ok=True)
        return
    new = file.with_suffix(".new")
    new.write_bytes(_OPEN.dump_json(open_))
    new.replace(file)
