"""The jars of Apache Kafka: fetched once, checked against ``kafka-jars.lock`` every time before anything of them
runs.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from stack import maven
from stack.errors import StackError
from stack.folders import cache_folder
from stack.shown import shown

KAFKA_VERSION = "4.3.1"
# connect-mirror is MirrorMaker 2, measured against in benchmarks/; kafka-tools has the command line tools. 4.4.0 has
# neither. Kafka logs through SLF4J and names no implementation: without log4j-slf4j-impl a broker is silent.
ARTIFACTS = (
    *(f"org.apache.kafka:{name}:{KAFKA_VERSION}" for name in ("kafka_2.13", "connect-mirror", "kafka-tools")),
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",
)
LOCK = Path(__file__).with_name("kafka-jars.lock")
FETCHED_MEGABYTES = 57


def kafka_jars(
    cache: Path | None = None, lock: Path = LOCK, tool: str | None = None, say: Callable[[str], None] = print
) -> Path:
    """The folder with exactly the jars of the lock file; fetches them where they are missing.

    ``tool`` forces ``mvn`` or ``ivy``. Raises StackError naming the jar when a checksum is wrong; the folder is then
    not handed out.
    """
    cache = cache or cache_folder()
    folder = cache / f"kafka-jars-{KAFKA_VERSION}"
    cache.mkdir(parents=True, exist_ok=True)
    with _only_one(cache / "kafka-jars.busy"):
        expected = read_lock(lock)
        if not all((folder / name).is_file() for name in expected):
            _fetch(cache, folder, expected, tool, say)
        check(folder, expected)
    return folder


def read_lock(lock: Path = LOCK) -> dict[str, str]:
    """Each jar's file name and its sha256, from lines as ``sha256sum`` writes them."""
    lines = (line.split() for line in lock.read_text().splitlines() if line and not line.startswith("#"))
    return {name: digest for digest, name in lines}


def check(folder: Path, expected: Mapping[str, str]) -> None:
    """Raise StackError unless the folder holds exactly the expected jars."""
    remedy = (
        f"delete the folder {folder} and run it again; if it comes back, the lock file or the place that served the"
        " jars is wrong"
    )
    found = {path.name: path for path in folder.glob("*.jar")}
    for name, digest in expected.items():
        if name not in found:
            raise StackError(f"{name} is missing from {folder}; nothing was started", remedy)
        actual = hashlib.sha256(found[name].read_bytes()).hexdigest()
        if actual != digest:
            raise StackError(
                f"wrong checksum: {name} has sha256 {actual}, kafka-jars.lock says {digest}; nothing was started",
                remedy,
            )
    for name in sorted(found.keys() - expected.keys()):
        raise StackError(f"{name} is in {folder} but not in kafka-jars.lock; nothing was started", remedy)


def _fetch(
    cache: Path, folder: Path, expected: Mapping[str, str], tool: str | None, say: Callable[[str], None]
) -> None:
    tool = tool or maven.fetcher()
    fresh, work = cache / "kafka-jars.fetching", cache / "kafka-jars.work"
    for leftover in (fresh, work, folder):
        shutil.rmtree(leftover, ignore_errors=True)
    fresh.mkdir()
    hint = "about 20 s" if tool == "mvn" else "about 2 minutes; seconds with mvn"
    say(f"fetching Apache Kafka {KAFKA_VERSION}: {len(expected)} jars, {FETCHED_MEGABYTES} MB, with {tool} ({hint})")
    start = time.monotonic()
    with shown(f"Apache Kafka {KAFKA_VERSION}: jars", len(expected)) as show:
        maven.fetch(ARTIFACTS, fresh, work, tool, seen=lambda: show(len(maven.there(fresh, work) & expected.keys())))
    size = sum(path.stat().st_size for path in fresh.glob("*.jar"))
    say(f"fetched {size / 1e6:.1f} MB in {time.monotonic() - start:.0f} s into {folder}")
    check(fresh, expected)
    fresh.rename(folder)
    shutil.rmtree(work, ignore_errors=True)


@contextmanager
def _only_one(path: Path) -> Iterator[None]:
    """Two programs that start at the same time must not fetch into the same folder; the system frees the lock when one
    dies.
    """
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
