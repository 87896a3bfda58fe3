"""Asks an OpenSearch cluster, and translates its errors. Answers are text: records are cut out of it unchanged."""

from __future__ import annotations

import json
import logging
import re
import ssl
from base64 import b64encode
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

import opensearchpy
from opensearchpy.serializer import Serializer

from kafka_replication.model.errors import (
    BadInput,
    NotAuthenticated,
    NotAuthorized,
    NotReady,
    Refused,
    ReplicationError,
    Stalled,
    TlsFailed,
    Unexpected,
    Unreachable,
)
from kafka_replication.model.harmless import harmless
from kafka_replication.model.rights import ClusterName

SETTINGS = frozenset(
    {"url", "login", "password", "api_key", "use_ssl", "verify_certs", "ca_certs", "client_cert", "client_key"}
)
SEE = "see docs/opensearch.md"
_NO_PAGE: Final = "correct the connection's address, or what answers in place of the cluster (a proxy, a login page)"
BLOCK = "cluster_block_exception"
for _logger in ("opensearch", "opensearchpy.trace"):  # they log bodies that are sent
    logging.getLogger(_logger).setLevel(logging.CRITICAL)
CONNECTIONS = 8  # of one client to each node, for the ranges that a worker copies at a time
_OF_RECORDS: Final = re.compile(r"/_(bulk|count|create|doc|search)\b")  # paths whose answers may show a record


def checked(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of the connection ``name``. Raises BadInput."""
    if not settings.get("url"):
        raise BadInput(f"connection {name!r} names no host", f"put the address into its host and port; {SEE}")
    if unknown := sorted(settings.keys() - SETTINGS):
        raise BadInput(
            f"connection {name!r} has the unknown setting {unknown[0]!r} in its extra",
            f"use only {', '.join(sorted(SETTINGS - {'url', 'login', 'password'}))}; {SEE}",
        )
    if "@" in str(settings["url"]):
        raise BadInput(f"connection {name!r} has a login in its host", "put it into login and password")
    if bool(settings.get("login")) != bool(settings.get("password")):
        raise BadInput(f"connection {name!r} has a login without a password, or the other way round", SEE)
    if settings.get("login") and settings.get("api_key"):
        raise BadInput(f"connection {name!r} has a login and an api_key", f"keep one of them; {SEE}")
    for flag in ("use_ssl", "verify_certs"):
        if not isinstance(settings.get(flag, True), bool):
            raise BadInput(f"connection {name!r} has {flag}: {settings[flag]!r} in its extra", "write true or false")
    return dict(settings)


class Answer(ReplicationError):
    """An HTTP status that the caller has to judge. It never leaves this package."""

    def __init__(self, what: str, status: int, kind: str, reason: str) -> None:
        super().__init__(what, "")
        self.status, self.kind, self.reason = status, kind, reason


class _Text(Serializer):
    """Leaves bodies and answers as they are."""

    mimetype = "application/json"

    def loads(self, s: str) -> Any:
        return s

    def dumps(self, data: Any) -> Any:
        return data


class Client:
    """One cluster. Threads may share it."""

    def __init__(self, settings: Mapping[str, Any], request_seconds: float) -> None:
        self.settings, self._seconds = settings, request_seconds
        self.name = ClusterName(str(settings["url"]), "target")
        files: dict[str, Any] = {
            name: str(settings[name]) for name in ("ca_certs", "client_cert", "client_key") if settings.get(name)
        }
        self._check_files(files)
        self._client = opensearchpy.OpenSearch(
            [str(settings["url"])],
            headers=_authorization(settings),
            use_ssl=settings.get("use_ssl", str(settings["url"]).startswith("https")),
            verify_certs=settings.get("verify_certs", True),
            max_retries=0,  # who repeats a request has to know whether that is harmless
            retry_on_timeout=False,
            timeout=request_seconds,
            pool_maxsize=CONNECTIONS,
            serializer=_Text(),
            serializers={"application/json": _Text(), "text/plain": _Text()},
            **files,
        )

    def _check_files(self, files: Mapping[str, Any]) -> None:
        """Raise BadInput for files of certificates that cannot be read: the client's own error names none."""
        try:
            context = ssl.create_default_context(cafile=files.get("ca_certs"))
            if "client_cert" in files:
                context.load_cert_chain(files["client_cert"], files.get("client_key"))
        except OSError as error:  # also one of ssl, for a file without certificates
            what = f"the certificates of {self.name} cannot be read ({', '.join(files.values())}): {error}"
            raise BadInput(what, f"put readable PEM files there, also where Spark's workers run; {SEE}") from error

    def text(self, method: str, path: str, body: bytes | None = None, **params: Any) -> str:
        """The answer to a request. Raises Unreachable, NotAuthenticated, NotAuthorized, NotReady, TlsFailed, and Answer
        for what the caller has to judge: 400, 404, 409, 413, 429.
        """
        try:
            asked = {name: str(value).lower() if isinstance(value, bool) else value for name, value in params.items()}
            found = self._client.transport.perform_request(method, path, params=asked, body=body)
        except opensearchpy.TransportError as error:
            cause = None if _OF_RECORDS.search(path) else error  # a traceback shows its text
            raise self._translated(error, method, path) from cause
        return found if isinstance(found, str) else ""

    def json(self, method: str, path: str, body: Any = None, **params: Any) -> dict[str, Any]:
        """The same of JSON. Raises also Unexpected for an answer that is no object, such as a proxy's page."""
        sent = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        answer = self.text(method, path, sent, **params)
        try:
            return dict(json.loads(answer))
        except (TypeError, ValueError):
            what = f"{self.name} answers {method} {path} with {len(answer)} characters that are no JSON object"
            raise Unexpected(f"{what}: {_told(path, answer[:200])!r}", f"{_NO_PAGE}; {SEE}") from None

    def asked(self, method: str, path: str, body: Any = None, **params: Any) -> dict[str, Any]:
        """The same where no answer is for the caller to judge: raises the error of each."""
        try:
            return self.json(method, path, body, **params)
        except Answer as answer:
            raise self.refused(answer) from answer

    def found(self, path: str, **params: Any) -> dict[str, Any] | None:
        """The thing at this path; None if there is none (404)."""
        try:
            return self.json("GET", path, **params)
        except Answer as answer:
            if answer.status == 404:
                return None
            raise self.refused(answer) from answer

    def refused(self, answer: Answer) -> ReplicationError:
        """The error of an answer that the caller did not expect."""
        if answer.status in (413, 429):
            return NotReady(answer.what, "give the cluster time, or more resources; run again")
        return Refused(answer.what, f"correct what the answer names; {SEE}")

    def _translated(self, error: opensearchpy.TransportError, method: str, path: str) -> ReplicationError:
        what = f"{self.name} does not answer {method} {path}: {error.error}"
        if isinstance(error, opensearchpy.SSLError):
            return TlsFailed(what, f"correct certificates and addresses; {SEE}")
        if isinstance(error, opensearchpy.ConnectionTimeout):
            return Stalled(f"{what}, within {self._seconds:g} s", "check the cluster; or raise timeouts.request")
        if isinstance(error, opensearchpy.ConnectionError):
            return Unreachable(what, "start the cluster, or correct the connection's address")
        status, (kind, reason) = int(error.status_code), _cause(error)
        reason = _told(path, reason)
        what = f"{self.name} refuses {method} {path} with {status} {kind}: {reason}"
        if status == 401:
            return NotAuthenticated(what, f"correct the connection's login; {SEE}")
        if kind == BLOCK and status < 500:
            return NotReady(what, "free disk space or remove the block (index.blocks.*); then it goes on")
        if status == 403:
            return NotAuthorized(what, f"grant the right that the answer names; {SEE}")
        if status >= 500:
            return NotReady(what, "check the cluster's health; run again")
        return Answer(what, status, kind, reason)


def _authorization(settings: Mapping[str, Any]) -> dict[str, str] | None:
    """Basic, of a login whose characters may be any, or an API key in the form that the cluster calls encoded."""
    if settings.get("api_key"):
        return {"authorization": f"ApiKey {settings['api_key']}"}
    if settings.get("login"):
        login = f"{settings['login']}:{settings['password']}".encode()
        return {"authorization": f"Basic {b64encode(login).decode()}"}
    return None


def path(*parts: str) -> str:
    """The path of a request; names and ids may have any character."""
    return "/" + "/".join(quote(part, safe="") for part in parts)


def _told(path: str, text: str) -> str:
    """The part of the answer to a request that may be told."""
    return harmless(text) if _OF_RECORDS.search(path) else text


def _cause(error: opensearchpy.TransportError) -> tuple[str, str]:
    """The class and the reason of the error."""
    info = error.info
    found = info.get("error") if isinstance(info, dict) else None
    if isinstance(found, dict):
        return str(found.get("type", "")), str(found.get("reason", ""))
    return "", str(found or error.error)
