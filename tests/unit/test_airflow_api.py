"""Airflow on a busy machine answers what is right with a 5xx, late, or not at all: its client asks again."""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from stack.airflow_api import AirflowApi
from stack.errors import StackError
from stack.ports import LOOPBACK

LOCKED = b'{"detail":{"reason":"Database error","orig_error":"database is locked"}}'
CREATES = "creates the run, then "


class BusyAirflow(ThreadingHTTPServer):
    """Knows DAG runs. Meets the first requests for one with ``troubles``: a status, ``late`` or ``reset``."""

    daemon_threads = True

    def __init__(self, *troubles: str, port: int = 0) -> None:
        self.troubles, self.runs, self.ended = list(troubles), list[str](), threading.Event()
        super().__init__((LOOPBACK, port), Handler)

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: BusyAirflow

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/auth/token":
            self.answer(201, {"access_token": "t"})
            return
        trouble = self.server.troubles.pop(0) if self.server.troubles else ""
        run_id, known = body.get("dag_run_id", "made by Airflow"), self.server.runs
        if CREATES in trouble:
            known.append(run_id)
        match trouble.removeprefix(CREATES):
            case "late":
                self.server.ended.wait()
            case "reset":
                self.connection.shutdown(socket.SHUT_RDWR)
            case "":
                status = 409 if run_id in known else 200
                known += [run_id] if run_id not in known else []
                self.answer(status, {"dag_run_id": run_id})  # last: the client may look at once
            case number:
                self.answer(int(number), LOCKED)

    def do_GET(self) -> None:
        *_, run_id = self.path.split("/")
        self.answer(200 if run_id in self.server.runs else 404, {"state": "queued"})

    def answer(self, status: int, body: Any) -> None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: Any) -> None:
        pass


@contextmanager
def serving(server: BusyAirflow) -> Iterator[BusyAirflow]:
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.ended.set()
        server.shutdown()
        server.server_close()
        thread.join()


def api_of(airflow: BusyAirflow, **more: Any) -> AirflowApi:
    return AirflowApi(airflow.url, "admin", "word", **more)


@pytest.mark.parametrize(
    "troubles",
    [
        ("500", "503"),
        ("reset", "500"),
        ("late",),
        (f"{CREATES}500",),
        (f"{CREATES}late",),
        (f"{CREATES}reset",),
    ],
    ids=", ".join,
)
def test_a_run_is_triggered_once_however_often_it_was_asked_for(troubles: tuple[str, ...]) -> None:
    with serving(BusyAirflow(*troubles)) as airflow, api_of(airflow, timeout=0.5) as api:
        run_id = api.trigger("orders")
        assert airflow.runs == [run_id] and airflow.troubles == []
        assert api.run_state("orders", run_id) == "queued"


class OnceRefused(logging.Handler):
    """Listens at this address as soon as a client was refused there."""

    def __init__(self, port: int, until: ExitStack) -> None:
        super().__init__(logging.DEBUG)
        self.port, self.until, self.airflow = port, until, list[BusyAirflow]()

    def emit(self, record: logging.LogRecord) -> None:
        if "connect_tcp.failed" in record.getMessage() and not self.airflow:
            self.airflow.append(self.until.enter_context(serving(BusyAirflow(port=self.port))))


def test_a_server_that_does_not_listen_yet_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    with serving(BusyAirflow()) as away:
        pass
    connecting = logging.getLogger("httpcore.connection")
    with ExitStack() as until, caplog.at_level(logging.DEBUG, connecting.name), api_of(away) as api:
        refused = OnceRefused(away.server_address[1], until)
        connecting.addHandler(refused)
        until.callback(connecting.removeHandler, refused)
        run_id = api.trigger("orders")
        assert refused.airflow[0].runs == [run_id]


@pytest.mark.parametrize(("status", "told"), [(500, False), (404, True)])
def test_only_who_asked_for_something_wrong_is_told_to_correct_it(status: int, told: bool) -> None:
    with serving(BusyAirflow(str(status))) as airflow, api_of(airflow, patience=0) as api:
        with pytest.raises(StackError) as raised:
            api.trigger("orders")
        assert ("correct" in raised.value.remedy) == told
        assert str(status) in raised.value.what and "database is locked" in raised.value.what
        assert airflow.runs == []


def test_what_is_wrong_is_asked_once() -> None:
    with serving(BusyAirflow("422", "500")) as airflow, api_of(airflow) as api:
        with pytest.raises(StackError):
            api.trigger("orders")
        assert airflow.troubles == ["500"]


def test_airflow_that_is_away_is_no_mistake_of_the_request() -> None:
    with serving(BusyAirflow()) as gone:
        pass
    with api_of(gone, patience=0) as api, pytest.raises(StackError) as raised:
        api.run_state("orders", "run")
    assert "correct" not in raised.value.remedy and "within 0 s" in raised.value.what
