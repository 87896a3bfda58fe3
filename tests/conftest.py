"""What all tests share: one state folder a session, and real Kafka clusters, started once when a test first asks for them.

``KAFKA_REPLICATION_TEST_SOURCE`` and ``KAFKA_REPLICATION_TEST_TARGET`` (bootstrap addresses) name brokers of your own instead. Tests that
stop brokers or delete the ledger start their own all the same. ``KAFKA_REPLICATION_TEST_KAFKA`` names versions of Kafka that the stack can
start, as in ``3.9.1,4.3.1``: the source's and that of all other clusters (`make matrix`). With
``KAFKA_REPLICATION_TEST_SEARCH=elasticsearch`` the tests that need OpenSearch get Elasticsearch 7.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from stack.artifacts import ELASTICSEARCH, OPENSEARCH
from stack.hbase_server import HBaseServer
from stack.kafka_cluster import KafkaCluster
from stack.opensearch_server import OpenSearchServer
from stack.ports import take_share
from tests.support import session_folder
from tests.support.clusters import Brokers, end_early, locked, shared

# A busy machine is no failure: no test of ours has a time limit of its own.
QUICKLY = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=30)
settings.register_profile("default", QUICKLY)
settings.register_profile("thorough", QUICKLY, max_examples=150)  # make test-all
settings.load_profile("default")

WORKER = os.environ.get("PYTEST_XDIST_WORKER")
if WORKER:
    take_share(int(WORKER.removeprefix("gw")), int(os.environ["PYTEST_XDIST_WORKER_COUNT"]))
    gc.disable()  # until the tests are collected: what is imported stays


def pytest_configure(config: pytest.Config) -> None:
    if not WORKER:
        session_folder.create()


def pytest_unconfigure(config: pytest.Config) -> None:
    if not WORKER:
        session_folder.remove()


@pytest.fixture(scope="session")
def stack_folder() -> Path:
    """The session's state folder, the same one for all its processes."""
    return session_folder.current()


@pytest.fixture(scope="session")
def _pair(stack_folder: Path) -> Sequence[Brokers]:
    """Source and target, started at the same time."""
    given = [os.environ.get(f"KAFKA_REPLICATION_TEST_{side}", "") for side in ("SOURCE", "TARGET")]
    if all(given):
        return [Brokers(bootstrap) for bootstrap in given]
    return [Brokers(cluster.bootstrap) for cluster in shared(stack_folder, "source", "target")]


@pytest.fixture(scope="session")
def source_cluster(_pair: Sequence[Brokers]) -> Brokers:
    """One broker that no test stops."""
    return _pair[0]


@pytest.fixture(scope="session")
def target_cluster(_pair: Sequence[Brokers]) -> Brokers:
    """One broker that no test stops, and a ledger that no test deletes."""
    return _pair[1]


@pytest.fixture
def own_cluster(stack_folder: Path) -> KafkaCluster:
    """One broker for tests that would disturb others; they run one after the other."""
    return shared(stack_folder, "own")[0]


@pytest.fixture
def target3(stack_folder: Path) -> KafkaCluster:
    """Three brokers, replication factor 3, min ISR 2, for tests that stop some of them; they run one after the other."""
    return shared(stack_folder, "target3", brokers=3)[0]


@pytest.fixture(scope="session")
def opensearch(stack_folder: Path) -> OpenSearchServer:
    """A node that tests may kill if they start it again; they run one after the other."""
    with locked(stack_folder, "opensearch"):
        release = {"elasticsearch": ELASTICSEARCH}.get(os.environ.get("KAFKA_REPLICATION_TEST_SEARCH", ""), OPENSEARCH)
        server = OpenSearchServer("opensearch", stack_folder, release=release)
        server.start()
    return server


@pytest.fixture(scope="session")
def hbase(stack_folder: Path) -> HBaseServer:
    """A server that tests may kill if they start it again; they run one after the other."""
    with locked(stack_folder, "hbase"):
        server = HBaseServer("hbase", stack_folder)
        server.start()
    return server


# Tests that ask for one of these share what only one process may have, or what takes long to start.
GROUPS = {
    "own_cluster": "own cluster",
    "target3": "three brokers",
    "old_cluster": "old brokers",
    "obliging": "obliging",
    "bearer_target": "bearer",
    "secured": "secured",
    "tls": "tls",
    "line": "line",
    "session": "faults",
    "spark_cluster": "spark cluster",
    "airflow": "airflow",
    "opensearch": "opensearch",
    "hbase": "hbase",
}


def end_opensearch(folder: Path) -> None:
    server = OpenSearchServer("opensearch", folder)
    if server.process is not None:
        server.kill()


def end_hbase(folder: Path) -> None:
    server = HBaseServer("hbase", folder)
    for which in ("thrift", "master"):
        if server.process(which) is not None:
            server.kill(which)


# Servers of one group alone: an idle broker takes a fiftieth of a processor.
ENDING: Mapping[str, Callable[[Path], None]] = {
    "own cluster": partial(end_early, name="own", brokers=1),
    "three brokers": partial(end_early, name="target3", brokers=3),
    "opensearch": end_opensearch,
    "hbase": end_hbase,
}
# Each test of these folders is dealt by itself, the others by file.
ONE_BY_ONE = ("lint", "spark", "integration")
# The longest first, so that all processes end at about the same time.
LONGEST = (
    "airflow",
    "e2e",
    "own cluster",
    "opensearch",
    "faults",
    "lint",
    "hbase",
    "three brokers",
    "spark",
    "integration",
)


@cache
def _fixtures(item: pytest.Item) -> frozenset[str]:
    """The fixtures of a test. One with parameters may name some there."""
    assert isinstance(item, pytest.Function)
    callspec = getattr(item, "callspec", None)
    named = (value for value in (callspec.params.values() if callspec else ()) if type(value) is str)
    return frozenset((*item.fixturenames, *named))


def _group(item: pytest.Item) -> str:
    """The tests that go to one process; empty for a test that may go anywhere."""
    names = _fixtures(item)
    for fixture, group in GROUPS.items():
        if fixture in names:
            return group
    return "" if item.path.parent.name in ONE_BY_ONE else f"{item.path.parent.name}/{item.path.name}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Each process begins with other files. In a fresh clone pytest rewrites the asserts of every file, which takes longer than to load
    them; who comes to a file later finds it rewritten.
    """
    asked = [Path(argument) for argument in session.config.args]
    if WORKER and all(path.exists() for path in asked):
        files = [str(file) for path in asked for file in (sorted(path.rglob("test_*.py")) if path.is_dir() else [path])]
        first = len(files) * int(WORKER.removeprefix("gw")) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
        session.config.args[:] = files[first:] + files[:first]


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def place(item: pytest.Item) -> tuple[int, Path]:
        names = (_group(item), item.path.parent.name)
        return next((number for number, name in enumerate(LONGEST) if name in names), len(LONGEST)), item.path

    items.sort(key=place)
    for item in items:
        if group := _group(item):
            item.add_marker(pytest.mark.xdist_group(group))
        if _fixtures(item) & {"_pair", *GROUPS}:
            item.add_marker(pytest.mark.servers)  # `make quick` leaves it out
        if group in GROUPS.values():
            item.extra_keyword_matches.add(group)  # ``-k opensearch`` finds all that ask for it (`make matrix`)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """One process has all tests of a group, one after the other, so the last one of them ends the group's servers."""
    group = _group(item)
    if WORKER and group in ENDING and (nextitem is None or _group(nextitem) != group):
        ENDING[group](session_folder.current())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What failed and then passed when it was repeated (``--reruns``, in CI alone) is shown as a failure is."""
    for report in terminalreporter.getreports("rerun"):
        terminalreporter.section(f"PASSED ONLY WHEN REPEATED, OR FAILED TWICE: {report.nodeid}")
        terminalreporter.line(report.longreprtext)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Python need not look at half a million objects again and again that stay for all tests. And without groups, tests that
    share a cluster would stop each other's brokers: pytest 9.2 ignores what xdist 3.8 sets.
    """
    gc.freeze()
    gc.enable()
    if getattr(session.config.option, "loadgroup", False):
        lost = [item for item in session.items if _group(item) and "@" not in item.nodeid]
        assert not lost, f"this pytest and this pytest-xdist do not keep groups together: {lost[0].nodeid}"
