"""The OpenSearch of the stack: it starts, keeps its data when it is killed, and is stopped by its pid."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from stack.artifacts import OPENSEARCH, check, jars, read_lock
from stack.errors import StackError
from stack.opensearch_server import OpenSearchServer
from tests.support.opensearch import OpenSearchGround


def process_of(server: OpenSearchServer) -> int | None:
    return server.process.pid if server.process else None


@pytest.mark.slow
def test_what_was_acknowledged_is_there_after_a_kill(opensearch: OpenSearchServer) -> None:
    topic, ground = f"stack-{uuid.uuid4().hex[:8]}", OpenSearchGround.of(opensearch)
    ground.create(topic)
    ground.ask("PUT", f"{topic}/_doc/a", {"n": 1})
    pids = [process_of(opensearch)]
    opensearch.kill()
    pids.append(process_of(opensearch))
    opensearch.start()
    pids.append(process_of(opensearch))
    assert pids[1] is None and len(set(pids)) == 3
    assert ground.ask("GET", f"{topic}/_doc/a")["_source"] == {"n": 1}
    opensearch.start()  # changes nothing
    ground.delete(topic)


def test_only_the_jars_of_the_lock_file_run(tmp_path: Path) -> None:
    expected, folder = read_lock(OPENSEARCH.lock), jars(OPENSEARCH)
    check(folder, expected, OPENSEARCH.lock)
    name = next(iter(expected))
    (tmp_path / name).write_bytes(b"another")
    with pytest.raises(StackError, match=f"wrong checksum: {name}"):
        check(tmp_path, {name: expected[name]}, OPENSEARCH.lock)


def test_a_server_that_was_never_started_says_so(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="was never started"):
        _ = OpenSearchServer("nowhere", tmp_path).url
