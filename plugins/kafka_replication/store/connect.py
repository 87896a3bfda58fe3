"""Connects to the database: its url, its settings, its clock, and the translation of its errors.

Waits for a database that is away. This is the one place that repeats calls of the store.

Every call of the store is one transaction, and may be repeated after an unknown outcome without doing its work twice
(`watermarks.store`).
"""

from __future__ import annotations

import logging
import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Engine, NullPool, create_engine, event, inspect, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    InterfaceError,
    InternalError,
    NoSuchModuleError,
    OperationalError,
)

from kafka_replication.model.errors import BadInput, Refused, ReplicationError, Unreachable
from kafka_replication.runtime import stopping
from kafka_replication.store.error_table import Row, row_of

log = logging.getLogger(__name__)
T = TypeVar("T")

PATIENCE: Final = 60.0  # seconds from the first call that failed: a database may be moved to another host
LONGEST_PAUSE: Final = 1.0


class Outage:
    """One store's outage, if there is one. The calls of all threads share its minute, so that a command that has waited
    in vain does not wait again in each of its last steps. A process that was asked to end does not wait.
    """

    def __init__(self) -> None:
        self._since: float | None = None
        self._given_up = False

    def outlast(self, call: Callable[[], T]) -> T:
        """Call, and repeat the call while the store is away. Raises Unreachable after `PATIENCE` seconds."""
        pause = 0.1
        while True:
            try:
                answer = call()
            except Unreachable as problem:
                left = self._left(problem)
                if not problem.outage or left <= 0:
                    raise
            else:
                self._over()
                return answer
            try:
                time.sleep(min(pause, left))
            except BaseException:  # Ctrl-C, or a signal: a process that ends does not wait
                self._given_up = True
                raise
            pause = min(2 * pause, LONGEST_PAUSE)

    def _left(self, problem: Unreachable) -> float:
        if not problem.outage or self._given_up or stopping.asked():
            return 0.0
        if self._since is None:
            self._since = time.monotonic()
            log.warning("%s; waiting for the store, for at most %.0f s", problem.what, PATIENCE)
        return self._since + PATIENCE - time.monotonic()

    def _over(self) -> None:
        since, self._since, self._given_up = self._since, None, False
        if since is not None:
            log.info("the store answers again, after %.0f s", time.monotonic() - since)


LOCK_SECONDS: Final = 30
SHORTEST_WORD: Final = 4  # letters of a password that is masked wherever a message has it
FIRST_TABLE: Final = "kafka_replication_schema"
# A server that vanishes is noticed after 10 + 4 * 5 s, not after the operating system's two hours.
_LIBPQ: Final = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 4,
    "tcp_user_timeout": 30_000,
}
_EXAMPLES: Final = "use sqlite:////absolute/path/store.db or postgresql+psycopg://user:password@host/database"
_DRIVER: Final = 'install one: pip install "psycopg[binary]" for postgresql+psycopg://'

# Not PostgreSQL's now(), which is the start of the transaction: one that waited for a row started long ago.
_CLOCKS: Final = {
    "sqlite": text("SELECT CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER)"),
    "postgresql": text("SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)"),
}
# A host that vanishes inside a transaction leaves row locks. The server ends such an idle session after a minute.
_PG_LIMITS: Final = text(
    f"SELECT set_config('lock_timeout', '{LOCK_SECONDS}s', true), set_config('idle_in_transaction_session_timeout',"
    " '60s', true)"
)


def clock(connection: Connection) -> int:
    """The database's time in milliseconds since the epoch. Read it after the rows are locked, not before."""
    return int(connection.execute(_CLOCKS[connection.dialect.name]).scalar_one())


def parse(url: str) -> URL:
    """The parsed url. Raises BadInput if it is not a usable store url; the message never contains the password."""
    try:
        parsed = make_url(url)
        dialect = parsed.get_dialect()
    except (ArgumentError, NoSuchModuleError, ValueError):
        raise BadInput("the store url is not an SQLAlchemy url of a known database", _EXAMPLES) from None
    if parsed.get_backend_name() not in _CLOCKS:
        raise BadInput(f"{parsed.get_backend_name()} is not supported as the watermark store", _EXAMPLES)
    if dialect.is_async:
        raise BadInput(f"{parsed.drivername} is an asynchronous driver", _EXAMPLES)
    if "@" in (parsed.host or ""):  # else part of an unescaped password would become a host name, which is logged
        raise BadInput("the store url holds more than one @", "write @ inside a password as %40")
    file = parsed.database or ""
    if parsed.get_backend_name() == "sqlite" and (not file or file.startswith((":memory:", "file:"))):
        raise BadInput("an SQLite watermark store needs a plain file, because it must outlive the process", _EXAMPLES)
    return parsed


def connect(url: URL) -> Engine:
    """The engine of this url, of which a process has one: it keeps the statements that it has compiled.

    It has no pool. Airflow forks its tasks, and no connection may be shared across a fork; and an SQLite file may be
    replaced by a backup at any time, because no connection keeps a part of it in its log. Raises BadInput.
    """
    if url.get_backend_name() == "sqlite":
        _make_parent(Path(url.database or ""))
    return _engine(url, Path.cwd())


@lru_cache(maxsize=4)
def _engine(url: URL, _folder: Path) -> Engine:
    # ``_folder``: a relative path of a file is another one in another folder.
    settings: dict[str, Any] = {}
    if url.get_backend_name() == "sqlite":
        if "timeout" not in url.query:  # seconds SQLite itself waits for another process's write
            settings["timeout"] = LOCK_SECONDS
    elif url.get_driver_name() in ("psycopg", "psycopg2"):
        settings = {name: value for name, value in _LIBPQ.items() if name not in url.query}
    try:
        engine = create_engine(url, poolclass=NullPool, connect_args=settings, hide_parameters=True)
    except ModuleNotFoundError as missing:
        raise BadInput(
            f"the store url asks for {url.drivername}, but its driver is not installed ({missing})", _DRIVER
        ) from None
    if url.get_backend_name() == "sqlite":
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    # A stricter default of the server would raise an error where this code waits for a row and then decides.
    return engine.execution_options(isolation_level="READ COMMITTED")


def is_there(store: str) -> bool:
    """True if there is a store at this url. Creates nothing. Raises BadInput, Unreachable."""
    url = parse(store)
    if url.get_backend_name() == "sqlite" and not os.path.exists(url.database or ""):  # noqa: PTH110 - Path raises where it may not look
        return False
    engine = connect(url)

    def look() -> bool:
        with translate_db_errors(url), engine.connect() as connection:
            return FIRST_TABLE in inspect(connection).get_table_names()

    try:
        return look() if url.get_backend_name() == "sqlite" else Outage().outlast(look)
    finally:
        engine.dispose()


def shown(store: str) -> str:
    """The url without user, password and parameters, for messages. Raises BadInput."""
    url = parse(store)
    return URL.create(url.drivername, host=url.host, port=url.port, database=url.database).render_as_string()


def limit_waits(connection: Connection) -> None:
    """Bound PostgreSQL's waits within this transaction; SQLite's are bounded by its busy timeout."""
    if connection.dialect.name == "postgresql":
        connection.execute(_PG_LIMITS)


def use_wal(engine: Engine) -> None:
    """Switch an SQLite file to WAL mode, so that readers and a writer can work at the same time. The mode is permanent.

    SQLite ignores its busy timeout for this switch and fails at once while another process writes. So processes that
    open a new file together retry here until the busy timeout is over.
    """
    if engine.dialect.name != "sqlite":
        return
    raw = engine.raw_connection()
    try:
        [millis] = raw.cursor().execute("PRAGMA busy_timeout").fetchone()
        deadline = time.monotonic() + millis / 1000
        while True:
            try:
                raw.cursor().execute("PRAGMA journal_mode=WAL")
                return
            except sqlite3.OperationalError as problem:
                locked = problem.sqlite_errorname.startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))
                if not locked or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
    finally:
        raw.close()


@contextmanager
def translate_db_errors(url: URL) -> Iterator[None]:
    """Raise database errors as this package's errors, without the url's secrets in the message or the traceback."""
    try:
        yield
    except DBAPIError as problem:
        passing = (
            isinstance(problem, (OperationalError, InterfaceError, InternalError)) or problem.connection_invalidated
        )
        if translated := _translated(problem.orig, passing, url):
            raise translated from None
        raise
    except sqlite3.Error as problem:  # from `use_wal`, which works below SQLAlchemy
        if translated := _translated(problem, isinstance(problem, sqlite3.OperationalError), url):
            raise translated from None
        raise


def describe(url: URL) -> str:
    """The name of the database for messages, without user, password or parameters."""
    if url.get_backend_name() == "sqlite":
        return f"watermark store {url.database}"
    port = f":{url.port}" if url.port else ""
    return f"watermark store {url.get_backend_name()}://{url.host or 'localhost'}{port}/{url.database or ''}"


def _translated(problem: BaseException | None, passing: bool, url: URL) -> ReplicationError | None:
    """The error of this package, or None. ``passing``: the error is of a kind for which a retry can help."""
    row = row_of(problem, passing=passing)
    return None if row is None else error_of(row, scrubbed(problem, url), url)


def error_of(row: Row, said: str, url: URL) -> ReplicationError:
    """The error of this kind, with the words of the database."""
    error = row.kind(f"{describe(url)} {row.what} ({said})", row.remedy)
    error.of_store = True
    if isinstance(error, Unreachable):
        error.outage = row.outage
    return error


def refused_schema(said: str, url: URL) -> Refused:
    """The error if the tables cannot be created, for example because a right is missing."""
    return Refused(
        f"{describe(url)}: its tables cannot be created ({said})", "grant this user CREATE on the database's schema"
    )


def no_folder(folder: Path, said: str) -> BadInput:
    """The error if the folder of an SQLite file cannot be made."""
    return BadInput(f"the watermark store's folder {folder} cannot be made ({said})", "name another folder")


def scrubbed(problem: BaseException | None, url: URL) -> str:
    lines = str(problem).strip().splitlines()
    said = lines[0] if lines else type(problem).__name__
    secrets = [
        secret
        for name, value in url.query.items()
        if "pass" in name
        for secret in ([value] if isinstance(value, str) else value)
    ]
    for secret in (str(url.password or ""), *secrets):
        if len(secret) >= SHORTEST_WORD:
            said = said.replace(secret, "***")
        elif secret:  # replaced everywhere, it would garble the words, and so be guessed
            said = re.sub(rf"(?<=[=:])(['\"]?){re.escape(secret)}(?!\w)", r"\1***", said)
    return said


def _make_parent(file: Path) -> None:
    if file.parent.exists():
        return
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        log.warning(
            "the watermark store's folder %s did not exist and was made; is the store's url right?", file.parent
        )
    except OSError as problem:
        raise no_folder(file.parent, str(problem.strerror)) from None


def _prepare_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # `_begin_sqlite` begins transactions, not the driver
    connection.execute("PRAGMA foreign_keys=ON")
    connection.execute("PRAGMA synchronous=FULL")  # a stored watermark survives a power cut


def _begin_sqlite(connection: Connection) -> None:
    connection.exec_driver_sql(str(connection.get_execution_options().get("sqlite_begin", "BEGIN")))
