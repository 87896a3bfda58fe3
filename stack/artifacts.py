"""The jars of the servers that the stack starts: Apache Kafka, OpenSearch, Elasticsearch, HBase. Fetched once for each
version, checked against its lock file every time before anything of them runs.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from pathlib import Path

from stack import maven
from stack.errors import StackError
from stack.folders import cache_folder
from stack.shown import shown

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Release:
    """One version of a server: what to fetch (``group:name:version``), and the checksums of all its jars."""

    version: str
    artifacts: tuple[str, ...]
    lock: Path
    megabytes: int
    _: KW_ONLY
    server: str = "kafka"  # begins the names of its folders
    title: str = "Apache Kafka"  # in messages
    alone: bool = False  # the artifacts are all that is fetched, not what they need
    zookeeper: bool = False  # its brokers need one, which is among its jars


# connect-mirror is MirrorMaker 2, measured against in benchmarks/; kafka-tools has the command line tools. 4.4.0 has
# neither. Kafka logs through SLF4J and names no implementation: without log4j-slf4j-impl a broker is silent.
CURRENT = Release(
    "4.3.1",
    (
        *(f"org.apache.kafka:{name}:4.3.1" for name in ("kafka_2.13", "connect-mirror", "kafka-tools")),
        "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",
    ),
    HERE / "kafka-jars.lock",
    57,
)
# The last line of Kafka 3: only its brokers. They call the interface of Log4j 1, which log4j-1.2-api answers.
OLDER = Release(
    "3.9.1",
    (
        "org.apache.kafka:kafka_2.13:3.9.1",
        "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",
        "org.apache.logging.log4j:log4j-1.2-api:2.25.4",
    ),
    HERE / "kafka-jars-3.9.1.lock",
    48,
)
# The oldest that is tested, with ZooKeeper: what brokers of Kafka 2 still run. The jars come without their tools.
OLDEST = Release(
    "2.8.2",
    (
        "org.apache.kafka:kafka_2.13:2.8.2",
        "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",
        "org.apache.logging.log4j:log4j-1.2-api:2.25.4",
    ),
    HERE / "kafka-jars-2.8.2.lock",
    39,
    zookeeper=True,
)
# A node without plugins but the one that listens. log4j-core is optional there, and nothing starts without it; it must
# have the version of log4j-api, which these bring.
OPENSEARCH = Release(
    "2.19.6",
    (
        "org.opensearch:opensearch:2.19.6",
        "org.opensearch.plugin:transport-netty4-client:2.19.6",
        "org.apache.logging.log4j:log4j-core:2.25.4",
    ),
    HERE / "opensearch-jars.lock",
    45,
    server="opensearch",
    title="OpenSearch",
)
# For tests only. Its license (SSPL or Elastic's own) is no free one.
ELASTICSEARCH = Release(
    "7.17.29",
    (
        "org.elasticsearch:elasticsearch:7.17.29",
        "org.elasticsearch.plugin:transport-netty4-client:7.17.29",
        "org.apache.logging.log4j:log4j-core:2.17.1",
    ),
    HERE / "elasticsearch-jars.lock",
    32,
    server="elasticsearch",
    title="Elasticsearch",
)
# By name, because Maven and Ivy choose other versions of what HBase, Hadoop and ZooKeeper need together.
HBASE = Release(
    "2.6.1",
    tuple(line for line in (HERE / "hbase-artifacts.txt").read_text().splitlines() if not line.startswith("#")),
    HERE / "hbase-jars.lock",
    67,
    server="hbase",
    title="Apache HBase",
    alone=True,
)
RELEASES = {release.version: release for release in (CURRENT, OLDER, OLDEST)}


def release_of(version: str) -> Release:
    """The release of this version. Raises StackError for one that is not known here."""
    if version not in RELEASES:
        raise StackError(f"Kafka {version} is not known here", f"name one of {', '.join(sorted(RELEASES))}")
    return RELEASES[version]


def kafka_jars(
    cache: Path | None = None,
    release: Release = CURRENT,
    tool: str | None = None,
    say: Callable[[str], None] = print,
) -> Path:
    """As `jars`, for a version of Kafka."""
    return jars(release, cache, tool, say)


def jars(
    release: Release, cache: Path | None = None, tool: str | None = None, say: Callable[[str], None] = print
) -> Path:
    """The folder with exactly the jars of the release's lock file; fetches them where they are missing.

    ``tool`` forces ``mvn`` or ``ivy``. Raises StackError naming the jar when a checksum is wrong; the folder is then
    not handed out.
    """
    cache = cache or cache_folder()
    folder = cache / f"{release.server}-jars-{release.version}"
    cache.mkdir(parents=True, exist_ok=True)
    with _only_one(cache / f"{release.server}-jars.busy"):
        expected = read_lock(release.lock)
        if not all((folder / name).is_file() for name in expected):
            _fetch(cache, folder, release, expected, tool, say)
        check(folder, expected, release.lock)
    return folder


def read_lock(lock: Path) -> dict[str, str]:
    """Each jar's file name and its sha256, from lines as ``sha256sum`` writes them."""
    lines = (line.split() for line in lock.read_text().splitlines() if line and not line.startswith("#"))
    return {name: digest for digest, name in lines}


def check(folder: Path, expected: Mapping[str, str], lock: Path) -> None:
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
                f"wrong checksum: {name} has sha256 {actual}, {lock.name} says {digest}; nothing was started",
                remedy,
            )
    for name in sorted(found.keys() - expected.keys()):
        raise StackError(f"{name} is in {folder} but not in {lock.name}; nothing was started", remedy)


def _fetch(
    cache: Path,
    folder: Path,
    release: Release,
    expected: Mapping[str, str],
    tool: str | None,
    say: Callable[[str], None],
) -> None:
    tool = tool or maven.fetcher()
    fresh, work = cache / f"{release.server}-jars.fetching", cache / f"{release.server}-jars.work"
    for leftover in (fresh, work, folder):
        shutil.rmtree(leftover, ignore_errors=True)
    fresh.mkdir()
    hint = "about 20 s" if tool == "mvn" else "about 2 minutes; seconds with mvn"
    named = f"{release.title} {release.version}"
    say(f"fetching {named}: {len(expected)} jars, {release.megabytes} MB, with {tool} ({hint})")
    start = time.monotonic()
    with shown(f"{named}: jars", len(expected)) as show:
        maven.fetch(
            release.artifacts,
            fresh,
            work,
            tool,
            seen=lambda: show(len(maven.there(fresh, work) & expected.keys())),
            alone=release.alone,
        )
    size = sum(path.stat().st_size for path in fresh.glob("*.jar"))
    say(f"fetched {size / 1e6:.1f} MB in {time.monotonic() - start:.0f} s into {folder}")
    check(fresh, expected, release.lock)
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
