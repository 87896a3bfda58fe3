"""``kafka-replication exporter``: the metrics of all replications for Prometheus."""

from __future__ import annotations

import base64
import hmac
import logging
import os
import ssl
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Annotated, Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import typer

from kafka_replication.cli.command_frame import default_store, failures_told, say_store
from kafka_replication.model.errors import BadInput, ReplicationError
from kafka_replication.runtime import extras, stopping

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

log = logging.getLogger(__name__)
PORT: Final = 9735
PASSWORD: Final = "KAFKA_REPLICATION_METRICS_PASSWORD"  # not an argument: everybody on the host sees those
USER: Final = "prometheus"
READ_SECONDS: Final = 30.0  # for one request, so that a client that says nothing does not stay


def exporter(
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="The port; 0: a free one.", min=0, max=65_535)] = PORT,
    certificate: Annotated[
        Path | None, typer.Option("--certificate", help="A PEM file: serve TLS.", show_default=False)
    ] = None,
    key: Annotated[
        Path | None, typer.Option("--key", help="The PEM file of its private key.", show_default=False)
    ] = None,
    by_topic: Annotated[
        bool, typer.Option("--by-topic", help="Also the lag of each topic: one series more for each.")
    ] = False,
) -> None:
    """Serve the metrics of all replications at /metrics, until Ctrl-C. Reads the store alone.

    If the variable KAFKA_REPLICATION_METRICS_PASSWORD is set, a scrape needs it, with the user `prometheus`.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    stopping.on_signals()
    with failures_told():
        application = _application(by_topic)
        password = os.environ.get(PASSWORD, "")
        served = _listening(host, port, _with_password(application, password) if password else application)
        if certificate is not None:
            served.socket = _tls(certificate, key).wrap_socket(
                served.socket, server_side=True, do_handshake_on_connect=False
            )
        say_store(writes=False)
    scheme = "https" if certificate else "http"
    typer.echo(f"serving {scheme}://{host}:{served.server_port}/metrics", err=True)
    with served:
        try:
            served.serve_forever()
        except KeyboardInterrupt:
            stopping.obeyed()


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    """Without a line in the log for each scrape."""

    timeout = READ_SECONDS

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        log.debug(format, *args)


def _listening(host: str, port: int, application: WSGIApplication) -> WSGIServer:
    """Raises BadInput for an address that is not of this host, or that another process has."""
    try:
        return make_server(host, port, application, _Server, _Quiet)
    except OSError as error:
        raise BadInput(
            f"cannot listen on {host}:{port}: {error.strerror or error}",
            "give an address of this host (--host) and a port that no other process has (--port)",
        ) from error


def _application(by_topic: bool) -> WSGIApplication:
    try:
        from prometheus_client import make_wsgi_app

        from kafka_replication.overview.metrics import Collector, registry
    except ModuleNotFoundError as missing:
        raise BadInput(
            f"the exporter needs a package that is not installed ({missing})", extras.install("prometheus_client")
        ) from missing
    metrics: WSGIApplication = make_wsgi_app(registry(Collector(default_store, by_topic)))

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ.get("PATH_INFO") not in ("/metrics", "/"):
            return _plain(start_response, "404 Not Found", "metrics are at /metrics")
        try:
            return metrics(environ, start_response)
        except ReplicationError as error:
            log.error("%s", error)
            return _plain(start_response, "503 Service Unavailable", str(error))

    return answer


def _with_password(application: WSGIApplication, password: str) -> WSGIApplication:
    """The application for those who know the password (HTTP Basic, RFC 7617)."""
    expected = b"Basic " + base64.b64encode(f"{USER}:{password}".encode())

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        given = str(environ.get("HTTP_AUTHORIZATION", "")).encode("latin-1", "replace")
        if hmac.compare_digest(given, expected):
            return application(environ, start_response)
        realm = ("WWW-Authenticate", 'Basic realm="kafka-replication", charset="UTF-8"')
        return _plain(start_response, "401 Unauthorized", f"user {USER} and the password in {PASSWORD}", realm)

    return answer


def _plain(start_response: Callable[..., object], status: str, text: str, *headers: tuple[str, str]) -> Iterable[bytes]:
    start_response(status, [("Content-Type", "text/plain; charset=utf-8"), *headers])
    return [f"{text}\n".encode()]


def _tls(certificate: Path, key: Path | None) -> ssl.SSLContext:
    """Raises BadInput for files that are no certificate and its key."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise BadInput(
            f"{certificate}: cannot be used for TLS: {error}",
            "give a PEM file with the certificate, and --key with its private key",
        ) from error
    return context
