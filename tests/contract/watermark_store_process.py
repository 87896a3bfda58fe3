"""The processes of the watermark store's conformance suite: forks one for each argument object, lets all act at the same moment.

    python watermark_store_process.py URL open|lease|advance|hang-in-advance '[{"argument": ...}, ...]'

Each prints what came of it as one line of JSON. Forking after the imports makes a dozen processes as cheap as one.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from sqlalchemy import Engine, Table, event

from kafka_replication.model.errors import Busy, StaleWriter
from kafka_replication.model.offsets import PartitionKey, TopicPartition
from kafka_replication.store import open_store
from tests.support import watermarks
from tests.support.leases import acquire


def look(url: str) -> dict[str, Any]:
    return {"watermarks": len(open_store(url).watermarks("nobody's"))}


def take_lease(url: str, replication: str, owner: str, seconds: float) -> dict[str, Any]:
    store = open_store(url)
    try:
        return {"owner": acquire(store, replication, owner, "try-1", seconds).owner, "busy": None}
    except Busy as busy:
        return {"owner": None, "busy": busy.what}


def advance(url: str, replication: str, offset: int, version: int | None, run_id: str) -> dict[str, Any]:
    key = PartitionKey(replication, TopicPartition("orders", 0), "orders")
    store = open_store(url)
    try:
        mark = watermarks.advance(store, key, offset, version, run_id=run_id)
    except StaleWriter as stale:
        return {"run_id": None, "offset": None, "stale": stale.what}
    return {"run_id": mark.run_id, "offset": mark.offset, "stale": None}


def hang_before_commit(_connection: object) -> None:
    say({"in transaction": os.getpid()})
    signal.pause()


def create_slowly(_target: object, _connection: object, **_: object) -> None:
    threading.Event().wait(1)  # wide enough for every process to arrive between "no tables yet" and the first table


def decide_slowly(_connection: object, _cursor: object, statement: str, *_: object) -> None:
    if "FROM kafka_replication_target_leases" in statement:
        threading.Event().wait(0.05)  # whoever may read the lease meanwhile decides on the same one


def say(what: object) -> None:
    os.write(1, json.dumps(what).encode() + b"\n")  # one write a line: lines of many processes do not mix


def act(url: str, command: str, arguments: dict[str, Any]) -> None:
    if command == "hang-in-advance":
        event.listen(Engine, "commit", hang_before_commit)
    if command == "open":
        event.listen(Table, "before_create", create_slowly, once=True)
    if command == "lease":
        event.listen(Engine, "after_cursor_execute", decide_slowly)
    actions: dict[str, Callable[..., dict[str, Any]]] = {
        "open": look,
        "lease": take_lease,
        "advance": advance,
        "hang-in-advance": advance,
    }
    say(actions[command](url, **arguments))


def main(url: str, command: str, each: list[dict[str, Any]]) -> None:
    ready, gate = os.pipe(), os.pipe()
    for arguments in each:
        if os.fork() == 0:
            os.close(gate[1])
            os.write(ready[1], b".")
            os.read(gate[0], 1)  # returns once the parent closes the other end
            act(url, command, arguments)
            os._exit(0)
    for _ in each:
        os.read(ready[0], 1)
    os.close(gate[1])
    for _ in each:
        os.wait()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
