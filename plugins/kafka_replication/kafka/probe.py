"""Finds out why a client gets no connection to an address: checks name, TCP, TLS, and the logins of the listener.

It only explains failures, and decides nothing while the client works. It uses one request, SaslHandshake, which every
listener answers (Kafka's protocol guide): with its mechanisms, or with the error that it takes no login.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kafka_replication.kafka import causes
from kafka_replication.kafka.causes import ConnectCause
from kafka_replication.model.errors import NotAuthenticated, TlsFailed, Unreachable

SECONDS = 2.0  # for each step
DEFAULT_PORT = 9092
SASL_HANDSHAKE, VERSION, CORRELATION = 17, 1, 1
NONE, UNSUPPORTED_MECHANISM, ILLEGAL_STATE = 0, 33, 34

# OpenSSL's X509_V_ERR_*, as `ssl.SSLCertVerificationError.verify_code` has them.
_VERIFY = {
    9: causes.CERTIFICATE_NOT_YET_VALID,
    10: causes.CERTIFICATE_EXPIRED,
    18: causes.UNKNOWN_AUTHORITY,
    19: causes.UNKNOWN_AUTHORITY,
    20: causes.UNKNOWN_AUTHORITY,
    21: causes.UNKNOWN_AUTHORITY,
    23: causes.CERTIFICATE_REVOKED,
    62: causes.WRONG_HOST_NAME,
    64: causes.WRONG_HOST_NAME,
}


def probe(address: str, settings: Mapping[str, Any]) -> ConnectCause | None:
    """The cause why a client with these settings gets no connection to ``host:port``; None if there is none to see."""
    host, port = address.rpartition(":")[0].strip("[]"), int(address.rpartition(":")[2])
    try:
        with socket.create_connection((host, port), SECONDS):
            pass
    except socket.gaierror as e:
        return replace(causes.NAME_NOT_RESOLVED, is_final=e.errno != socket.EAI_AGAIN)
    except ConnectionRefusedError:
        return causes.REFUSED
    except OSError as e:
        return replace(causes.NO_ANSWER, what=f"no answer to connecting ({e})")
    try:
        return _listening(host, port, settings)
    except TimeoutError:
        return replace(causes.NO_ANSWER, what=f"a program takes the connection, and says nothing for {SECONDS:.0f} s")


def _listening(host: str, port: int, settings: Mapping[str, Any]) -> ConnectCause | None:
    """The cause at a port that takes connections."""
    protocol = str(settings.get("security.protocol", "plaintext")).upper()
    wants_tls, wants_login = protocol.endswith("SSL"), protocol.startswith("SASL")
    if wants_tls:
        if cause := certificate_problem(host, port, settings):
            return cause
        if login_of(host, port, with_tls=False) is not None:
            return causes.BROKER_WITHOUT_TLS
    elif login_of(host, port, with_tls=False) is None and _speaks_tls(host, port):
        return causes.BROKER_WITH_TLS
    mechanisms = login_of(host, port, with_tls=wants_tls)
    if mechanisms is None:
        return None
    if mechanisms and not wants_login:
        return replace(causes.LOGIN_MISSING, what=f"{causes.LOGIN_MISSING.what} (it offers {', '.join(mechanisms)})")
    if wants_login and not mechanisms:
        return causes.LOGIN_NOT_EXPECTED
    return _no_token(settings) if wants_login else None


def _no_token(settings: Mapping[str, Any]) -> ConnectCause | None:
    """The reason why an OpenID provider gives no token for the login; None if it does, or if none is asked. librdkafka
    2.16 tells a client nothing about it.
    """
    if str(settings.get("sasl.oauthbearer.method", "")).lower() != "oidc":
        return None
    from kafka_replication.wire.oidc import TokenEndpoint  # only a connection that fails needs it

    try:
        TokenEndpoint(settings).fetch(SECONDS)
    except (NotAuthenticated, TlsFailed) as refused:
        cause = causes.LOGIN_REFUSED if isinstance(refused, NotAuthenticated) else causes.TLS_FAILED
        return replace(cause, what=refused.what, remedy=refused.remedy)
    except Unreachable as away:
        return replace(causes.NO_ANSWER, what=away.what, remedy=away.remedy)
    except ValueError:  # settings that only librdkafka follows
        return None
    return None


def certificate_problem(host: str, port: int, settings: Mapping[str, Any]) -> ConnectCause | None:
    """The reason why the broker's certificate does not satisfy these settings; None if it does, or is not readable."""
    try:  # a context with the same trusted authorities as librdkafka
        text, place = settings.get("ssl.ca.pem"), settings.get("ssl.ca.location")
        context = ssl.create_default_context(cadata=text, cafile=None if place in (None, "probe") else str(place))
        if settings.get("ssl.endpoint.identification.algorithm") == "none":
            context.check_hostname = False
        if str(settings.get("enable.ssl.certificate.verification", "true")).lower() == "false":
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if revoked := settings.get("ssl.crl.location"):
            context.load_verify_locations(cafile=str(revoked))
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    except (OSError, ValueError):  # a form of certificates that Python does not read
        return None
    try:
        with _connected(host, port) as plain, context.wrap_socket(plain, server_hostname=host):
            return None
    except ssl.SSLCertVerificationError as e:
        cause = _VERIFY.get(e.verify_code, causes.CERTIFICATE_NOT_VERIFIED)
        return replace(cause, what=f"{cause.what} ({e.verify_message})")
    except TimeoutError:
        raise
    except OSError:
        return None


def _speaks_tls(host: str, port: int) -> bool:
    """True if the listener answers a TLS greeting. An alert is an answer, too."""
    try:
        with (
            _connected(host, port) as plain,
            _careless().wrap_socket(plain, server_hostname=host),
        ):
            return True
    except ssl.SSLError as e:
        return "ALERT" in (e.reason or "")
    except TimeoutError:
        raise
    except OSError:
        return False


def login_of(host: str, port: int, *, with_tls: bool) -> Sequence[str] | None:
    """The login mechanisms of a Kafka broker's listener; no element if it takes no login. None if the listener is no
    broker, or if ``with_tls`` is wrong.
    """
    try:
        with _connected(host, port) as plain:
            if not with_tls:
                return _ask(plain)
            with _careless().wrap_socket(plain, server_hostname=host) as secure:
                return _ask(secure)
    except TimeoutError:
        raise
    except (OSError, struct.error, UnicodeDecodeError):
        return None


def _ask(connection: socket.socket) -> Sequence[str] | None:
    """Send SaslHandshake, and read the answer."""
    mechanism = b"PLAIN"
    request = struct.pack(">hhihh", SASL_HANDSHAKE, VERSION, CORRELATION, -1, len(mechanism)) + mechanism
    connection.sendall(struct.pack(">i", len(request)) + request)
    (size,) = struct.unpack(">i", _read(connection, 4))
    if not 10 <= size <= 10_000:
        return None
    answer = _read(connection, size)
    correlation, error, count = struct.unpack_from(">ihi", answer)
    if correlation != CORRELATION or error not in (NONE, UNSUPPORTED_MECHANISM, ILLEGAL_STATE):
        return None
    rest, mechanisms = answer[10:], list[str]()
    for _ in range(count):
        (length,) = struct.unpack_from(">h", rest)
        mechanisms.append(rest[2 : 2 + length].decode())
        rest = rest[2 + length :]
    return mechanisms


def _read(connection: socket.socket, count: int) -> bytes:
    got = b""
    while len(got) < count:
        part = connection.recv(count - len(got))
        if not part:
            raise ConnectionResetError("the broker closed the connection")
        got += part
    return got


def _connected(host: str, port: int) -> socket.socket:
    return socket.create_connection((host, port), SECONDS)


def _careless() -> ssl.SSLContext:
    """A context that trusts every server. Nothing secret is sent with it."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def addresses(settings: Mapping[str, Any]) -> list[str]:
    """The bootstrap addresses as ``host:port``."""
    named = (part.strip().rpartition("//")[2] for part in str(settings.get("bootstrap.servers", "")).split(","))
    return [
        part if part.rpartition(":")[2].isdigit() and not part.endswith("]") else f"{part}:{DEFAULT_PORT}"
        for part in named
        if part
    ]
