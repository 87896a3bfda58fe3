"""Answers of OpenSearch to a search: which of them are whole, whatever the documents say."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from kafka_replication.model.errors import NotReady, ReplicationError, Unexpected
from kafka_replication.opensearch.client import Client
from kafka_replication.opensearch.searches import documents
from stack.ports import LOOPBACK

# As OpenSearch 2.19 answers with search.phase_took_enabled.
PHASES = {"dfs_pre_query": 0, "query": 1, "fetch": 0, "dfs_query": 0, "expand": 0, "can_match": 0}
MARK = "of-a-customer"


@contextmanager
def answering(answer: bytes) -> Iterator[Client]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *args: Any) -> None:
            pass

    with ThreadingHTTPServer((LOOPBACK, 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield Client({"url": f"http://{LOOPBACK}:{server.server_address[1]}"}, 30)
        finally:
            server.shutdown()
            thread.join()


def answer(shards: dict[str, Any], before: dict[str, Any], **more: Any) -> bytes:
    source = {"timed_out": False, "_shards": {"failed": 0}, "text": MARK}
    hit = {"_index": "i", "_id": "1", "_source": source, "sort": [7]}
    found = {**before, "_shards": shards, "hits": {"max_score": None, "hits": [hit]}, **more}
    return json.dumps(found, separators=(",", ":")).encode()


WHOLE = {"total": 1, "successful": 1, "skipped": 0, "failed": 0}
BEFORE = {"took": 1, "timed_out": False}


@pytest.mark.parametrize(
    "whole",
    [
        answer(WHOLE, BEFORE),
        answer(WHOLE, {"took": 1, "phase_took": PHASES, "timed_out": False}),
        answer(WHOLE, BEFORE | {"num_reduce_phases": 2, "_clusters": {"names": ["a" * 300]}}),
        answer(WHOLE, BEFORE, ext={"said": "by a search pipeline"}),
    ],
    ids=["as usual", "with the times of its phases", "of several clusters", "with more behind the hits"],
)
def test_a_whole_answer_is_known_by_its_fields(whole: bytes) -> None:
    with answering(whole) as client:
        [(id_, text)] = documents(client, "i", {"match_all": {}})
    assert id_ == "1" and MARK.encode() in text


@pytest.mark.parametrize(
    ("part", "error"),
    [
        (answer(WHOLE | {"failed": 1}, BEFORE), NotReady),
        (answer(WHOLE, {"took": 1, "timed_out": True}), NotReady),
        (answer(WHOLE, {"took": 1}), Unexpected),
        (answer(WHOLE, BEFORE).replace(b',"sort":[7]', b""), Unexpected),
        (answer(WHOLE, BEFORE)[:-1], Unexpected),
    ],
    ids=["a shard failed", "out of time", "without a field", "not sorted", "cut off"],
)
def test_what_documents_say_makes_no_answer_whole(part: bytes, error: type[ReplicationError]) -> None:
    with answering(part) as client, pytest.raises(error) as raised:
        list(documents(client, "i", {"match_all": {}}))
    assert MARK not in str(raised.value)
