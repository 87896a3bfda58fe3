"""The login of a connection: TLS and SASL, from the settings of a confluent-kafka client."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
CLIENT = "rdkafka"  # confluent-kafka's own, so that the same quota counts
_KNOWN = frozenset(
    {
        "client.id",
        "security.protocol",
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.endpoint.identification.algorithm",
        "enable.ssl.certificate.verification",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.username",
        "sasl.password",
    }
)
# Settings of these groups say how to connect. Others, such as `fetch.wait.max.ms`, concern confluent-kafka alone.
_CONNECTING = (
    "security.",
    "ssl.",
    "enable.ssl.",
    "sasl.",
    "enable.sasl.",
    "https.",
    "broker.address.",
    "client.dns.",
    "client.id",
    "oauth",
)


def is_about_connecting(setting: str) -> bool:
    return setting.startswith(_CONNECTING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """The TLS context, or None without TLS, and the SASL login: mechanism, user and password. The mechanism is empty
    without a login. Brokers count quotas by user and ``client``.
    """

    client: str = CLIENT
    tls: ssl.SSLContext | None = None
    mechanism: str = ""
    user: str = ""
    password: str = field(default="", repr=False)

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self:
        """The security for these settings. Raises ValueError, which names a setting that this package does not support;
        OSError for an unusable file.
        """
        for name in sorted(config):
            if is_about_connecting(name) and name not in _KNOWN:
                raise ValueError(f"the connection sets {name}")
        protocol = str(config.get("security.protocol", "plaintext")).upper()
        mechanism = str(config.get("sasl.mechanisms", config.get("sasl.mechanism", "GSSAPI"))).upper()
        sasl = protocol.startswith("SASL_")
        if sasl and mechanism not in MECHANISMS:
            raise ValueError(f"the connection logs in with {mechanism}")
        return cls(
            client=str(config.get("client.id", CLIENT)),
            tls=_context(config) if protocol.endswith("SSL") else None,
            mechanism=mechanism if sasl else "",
            user=str(config.get("sasl.username", "")),
            password=str(config.get("sasl.password", "")),
        )


def _context(config: Mapping[str, Any]) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
    authority = str(config.get("ssl.ca.location", "probe"))
    if authority != "probe":
        folder = Path(authority).is_dir()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(capath=authority if folder else None, cafile=None if folder else authority)
    context.check_hostname = str(config.get("ssl.endpoint.identification.algorithm", "https")).lower() == "https"
    if str(config.get("enable.ssl.certificate.verification", "true")).lower() == "false":
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if certificate := config.get("ssl.certificate.location"):
        # Without a password OpenSSL would ask for it on the terminal.
        password = str(config.get("ssl.key.password", ""))
        context.load_cert_chain(certificate, config.get("ssl.key.location"), password)
    return context
