"""Why a cluster does not let a client in: an error that names the side, the address, the cause and what to change."""

from __future__ import annotations

import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from kafka_replication.kafka import causes
from kafka_replication.kafka.causes import Cause
from kafka_replication.kafka.probe import addresses, probe
from kafka_replication.model.errors import ReplicationError, TlsFailed, Unreachable
from kafka_replication.model.rights import UNKNOWN_PRINCIPAL, ClusterName

SIDE, CONNECTION = "kafka-replication.side", "kafka-replication.connection"  # beside the client's own settings
_UNUSABLE = re.compile(r"(ssl\.[a-z.]+) failed: (.*)")
_OWN_CERTIFICATE = ("ssl.certificate.location", "ssl.certificate.pem", "ssl.keystore.location")
# The event says all there is; a probe would only add that the port is open.
_SAID_IT_ALL = (causes.LOGIN_REFUSED, causes.MECHANISM_NOT_ENABLED, causes.CLIENT_CERTIFICATE_REFUSED)

Found = Mapping[str, Cause]  # by address


def name_of(settings: Mapping[str, Any]) -> ClusterName:
    """What messages call the cluster."""
    return ClusterName(
        str(settings.get("bootstrap.servers", "")), settings.get(SIDE, ""), str(settings.get(CONNECTION, ""))
    )


def principal_of(settings: Mapping[str, Any]) -> str:
    """Who the client is for the brokers, as far as its settings tell."""
    protocol = str(settings.get("security.protocol", "plaintext")).upper()
    if protocol.startswith("SASL"):
        return f"User:{settings['sasl.username']}" if settings.get("sasl.username") else UNKNOWN_PRINCIPAL
    return UNKNOWN_PRINCIPAL if any(name in settings for name in _OWN_CERTIFICATE) else "User:ANONYMOUS"


def look(settings: Mapping[str, Any], heard: Mapping[str, str]) -> Found:
    """The cause at each bootstrap address where there is one. ``heard`` is the newest error of each address."""
    known = addresses(settings)
    with ThreadPoolExecutor(max(1, len(known))) as threads:
        found = dict(zip(known, threads.map(lambda at: _cause(at, heard.get(at, ""), settings), known), strict=True))
    return {address: cause for address, cause in found.items() if cause is not None}


def is_final(settings: Mapping[str, Any], found: Found) -> bool:
    """Whether no address can ever work with these settings."""
    known = addresses(settings)
    return bool(known) and all(address in found and found[address].is_final for address in known)


def _cause(address: str, said: str, settings: Mapping[str, Any]) -> Cause | None:
    cause = causes.of_text(said)
    if cause in _SAID_IT_ALL:
        return _told(cause, said, settings)
    seen = probe(address, settings)
    if cause is not None and (seen is None or (cause is causes.CERTIFICATE_NOT_VERIFIED and not seen.is_final)):
        resolved = cause is causes.NAME_NOT_RESOLVED  # the probe found the address
        return replace(_told(cause, said, settings), is_final=cause.is_final and not resolved)
    return seen


def _told(cause: Cause, said: str, settings: Mapping[str, Any]) -> Cause:
    """The cause with what the connection has to do with it, and what was said."""
    if cause is causes.CLIENT_CERTIFICATE_REFUSED and not any(name in settings for name in _OWN_CERTIFICATE):
        cause = causes.CLIENT_CERTIFICATE_MISSING
    what = cause.what
    if cause is causes.LOGIN_REFUSED:
        mechanism = settings.get("sasl.mechanism") or settings.get("sasl.mechanisms") or "GSSAPI"
        what = f"{what} of {settings.get('sasl.username', 'this client')!r} by {mechanism}"
    return replace(cause, what=f"{what} ({said})")


def error_of(
    settings: Mapping[str, Any], found: Found, otherwise: str, waited: float | None = None
) -> ReplicationError:
    """The error. ``otherwise`` says what happened if no cause is known; ``waited`` is in seconds."""
    cluster = name_of(settings)
    if not found:
        return Unreachable(
            f"cannot reach {cluster} within {waited or 0:.0f} s: {otherwise}",
            "check the address, port and security settings of the connection, and that the brokers run",
        )
    first = next((cause for cause in found.values() if cause.is_final), next(iter(found.values())))
    several = len(addresses(settings)) > 1
    said = "; ".join(f"{address}: {cause.what}" if several else cause.what for address, cause in found.items())
    if is_final(settings, found):
        return first.kind(f"{cluster}: {said}", first.remedy)
    return Unreachable(f"cannot reach {cluster} within {waited or 0:.0f} s: {said}", first.remedy)


def unusable(settings: Mapping[str, Any], reason: str) -> TlsFailed | None:
    """The error if the client cannot be made because of a file or text of its TLS settings."""
    match = _UNUSABLE.search(reason)
    if match is None:
        return None
    name, why = match.groups()
    value, cluster = str(settings.get(name, "")), name_of(settings)
    if name.endswith(".location") and not Path(value).is_file():
        return TlsFailed(
            f"{cluster}: {name} names the file {value}, which does not exist on this machine",
            causes.SETTING_UNUSABLE.remedy,
        )
    shown = f" ({value})" if name.endswith(".location") else ""
    return TlsFailed(f"{cluster}: {name}{shown} cannot be used: {why}", causes.SETTING_UNUSABLE.remedy)
