"""Defines the causes for which a client gets no connection to a broker, and librdkafka's messages about them.

librdkafka 2.16 does not distinguish an expired certificate, a wrong name and an unknown authority. If a listener wants
TLS or a login that the client does not have, it reports nothing: then `probe` asks the broker itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kafka_replication.model.errors import NotAuthenticated, NotResolved, ReplicationError, TlsFailed, Unreachable


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectCause:
    """One cause. ``is_final``: only a change of settings, certificates or names can heal it."""

    name: str  # stable, for programs and as an anchor in docs/errors.md
    kind: type[ReplicationError]
    what: str
    remedy: str
    is_final: bool = True


LOGIN_REFUSED = ConnectCause(
    name="login-refused",
    kind=NotAuthenticated,
    what="the broker refuses the login",
    remedy="correct sasl.username and sasl.password in the connection's extra, or add the user to the brokers",
)
TOKEN_REFUSED = ConnectCause(
    name="token-refused",
    kind=NotAuthenticated,
    what="the broker refuses the token",
    remedy="correct the sasl.oauthbearer.* settings of the connection's extra, its oauth_cb, or what the machine's"
    " credentials may do at the cloud; the broker's log says what is wrong with the token",
)
MECHANISM_NOT_ENABLED = ConnectCause(
    name="mechanism-not-enabled",
    kind=NotAuthenticated,
    what="the broker does not offer the login's mechanism",
    remedy="set sasl.mechanism in the connection's extra to one that the broker offers",
)
LOGIN_NOT_EXPECTED = ConnectCause(
    name="login-not-expected",
    kind=NotAuthenticated,
    what="this listener takes no login, but the connection has one",
    remedy="set security.protocol to SSL or PLAINTEXT, or bootstrap.servers to a listener with SASL",
)
LOGIN_MISSING = ConnectCause(
    name="login-missing",
    kind=NotAuthenticated,
    what="this listener asks for a login, but the connection has none",
    remedy="set in the connection's extra security.protocol to SASL_SSL (without TLS: SASL_PLAINTEXT), sasl.mechanism"
    " to one that the broker offers, and what that needs (sasl.username and sasl.password, or where tokens come from),"
    " see docs/connections.md",
)
LOGIN_FAILED = ConnectCause(
    name="login-failed",
    kind=NotAuthenticated,
    what="the login fails",
    remedy="compare the sasl.* settings of the connection's extra with those of the brokers",
)
CERTIFICATE_EXPIRED = ConnectCause(
    name="certificate-expired",
    kind=TlsFailed,
    what="the broker's certificate has expired",
    remedy="renew the broker's certificate",
)
CERTIFICATE_NOT_YET_VALID = ConnectCause(
    name="certificate-not-yet-valid",
    kind=TlsFailed,
    what="the broker's certificate is not valid yet",
    remedy="compare the clocks of this machine and the broker's, or issue the certificate anew",
)
UNKNOWN_AUTHORITY = ConnectCause(
    name="unknown-authority",
    kind=TlsFailed,
    what="this client does not know the authority that issued the broker's certificate",
    remedy="set ssl.ca.location (or ssl.ca.pem) in the connection's extra to the certificate of that authority",
)
WRONG_HOST_NAME = ConnectCause(
    name="wrong-host-name",
    kind=TlsFailed,
    what="the broker's certificate is for another host name",
    remedy="use a name of the certificate in bootstrap.servers and in the brokers' advertised.listeners, or issue a"
    " certificate with this name",
)
CERTIFICATE_REVOKED = ConnectCause(
    name="certificate-revoked",
    kind=TlsFailed,
    what="the broker's certificate is revoked by ssl.crl.location",
    remedy="issue a new certificate for the broker, or correct the list of revoked ones",
)
CERTIFICATE_NOT_VERIFIED = ConnectCause(
    name="certificate-not-verified",
    kind=TlsFailed,
    what="the broker's certificate cannot be verified",
    remedy="compare ssl.ca.location in the connection's extra, the host name and the dates with the certificate:"
    " openssl s_client -connect HOST:PORT",
)
CLIENT_CERTIFICATE_MISSING = ConnectCause(
    name="client-certificate-missing",
    kind=TlsFailed,
    what="the broker asks for a client certificate, and the connection has none",
    remedy="set ssl.certificate.location and ssl.key.location in the connection's extra",
)
CLIENT_CERTIFICATE_REFUSED = ConnectCause(
    name="client-certificate-refused",
    kind=TlsFailed,
    what="the broker refuses the client's certificate",
    remedy="set ssl.certificate.location to a valid certificate of an authority in the broker's trust store",
)
BROKER_WITHOUT_TLS = ConnectCause(
    name="broker-without-tls",
    kind=TlsFailed,
    what="this listener speaks no TLS, but the connection wants it",
    remedy="set security.protocol to PLAINTEXT or SASL_PLAINTEXT, or bootstrap.servers to a listener with TLS",
)
BROKER_WITH_TLS = ConnectCause(
    name="broker-with-tls",
    kind=TlsFailed,
    what="this listener speaks TLS, but the connection does not",
    remedy="set security.protocol to SSL or SASL_SSL in the connection's extra",
)
TLS_FAILED = ConnectCause(
    name="tls-handshake-failed",
    kind=TlsFailed,
    what="the TLS handshake fails",
    remedy="compare the ssl.* settings of the connection's extra with those of the brokers",
)
SETTING_UNUSABLE = ConnectCause(
    name="tls-file-unusable",
    kind=TlsFailed,
    what="a file or text of the TLS settings cannot be used",
    remedy="put the file where every client runs, or the text itself into the connection, see docs/connections.md",
)
KEY_PASSWORD_WRONG = ConnectCause(
    name="tls-password-wrong",
    kind=TlsFailed,
    what="the password of the client's key is wrong or missing",
    remedy="set ssl.key.password (for a PKCS#12 file: ssl.keystore.password) in the connection's extra to the password"
    " with which the key was made",
)
KEY_OF_ANOTHER_CERTIFICATE = ConnectCause(
    name="tls-key-of-another-certificate",
    kind=TlsFailed,
    what="the client's key does not belong to the client's certificate",
    remedy="set ssl.key.* and ssl.certificate.* in the connection's extra to the key and the certificate of one pair",
)
NAME_NOT_RESOLVED = ConnectCause(
    name="unknown-host-name",
    kind=NotResolved,
    what="the host name is not known",
    remedy="correct bootstrap.servers in the connection's extra, or the name service of this machine",
)
NO_KAFKA = ConnectCause(
    name="no-kafka",
    kind=Unreachable,
    what="what answers there does not speak Kafka's protocol",
    remedy="correct the port in bootstrap.servers",
    is_final=False,  # a proxy in front of a broker that is away answers so, too
)
REFUSED = ConnectCause(
    name="tcp-refused",
    kind=Unreachable,
    what="connection refused: nothing listens at this address",
    remedy="check that the brokers run, and the address and port in bootstrap.servers",
    is_final=False,
)
NO_ANSWER = ConnectCause(
    name="no-answer",
    kind=Unreachable,
    what="no answer",
    remedy="check the address, firewall and routes between this machine and the brokers, and that the brokers run",
    is_final=False,
)
ALL = tuple(value for value in tuple(vars().values()) if isinstance(value, ConnectCause))

# The codes and messages of librdkafka 2.15 and 2.16 (from brokers of Kafka 4.3.1), most special first. A message only
# makes the code's own cause more precise: one that is not known changes nothing else. Only answers of a broker, and
# checks of this client itself, are final: a broker that stops in the middle of a handshake proves nothing.
_TEXTS: Sequence[tuple[re.Pattern[str], ConnectCause]] = tuple(
    (re.compile(pattern, re.IGNORECASE | re.DOTALL), cause)
    for pattern, cause in (
        ("disconnected|transport failure|timed out", NO_ANSWER),
        ("^_AUTHENTICATION: .*unsupported SASL mechanism", MECHANISM_NOT_ENABLED),
        ("^_AUTHENTICATION: .*not valid in current SASL state", LOGIN_NOT_EXPECTED),
        ("^_AUTHENTICATION: .*(authentication failed|invalid credentials)", LOGIN_REFUSED),
        ("^_AUTHENTICATION: ", LOGIN_FAILED),
        ("^_RESOLVE: ", NAME_NOT_RESOLVED),
        ("^_(SSL|TRANSPORT): .*alert (bad certificate|certificate|unknown ca)", CLIENT_CERTIFICATE_REFUSED),
        ("^_SSL: .*certificate verify failed", CERTIFICATE_NOT_VERIFIED),
        ("^_SSL: ", TLS_FAILED),
        ("^_TRANSPORT: .*connection refused", REFUSED),
        ("^_BAD_MSG: .*invalid response size", NO_KAFKA),
    )
)


def of_text(said: str) -> ConnectCause | None:
    """The cause that a connection's error names, as ``code: message``, or None."""
    return next((cause for pattern, cause in _TEXTS if pattern.search(said)), None)
