"""Makes the error for a cluster that does not admit a client: the side, the address, the cause and the remedy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from kafka_replication.kafka.diagnosis import causes, setting_names
from kafka_replication.kafka.diagnosis.causes import ConnectCause
from kafka_replication.kafka.diagnosis.probe import addresses, probe
from kafka_replication.model.errors import BadInput, ReplicationError, TlsFailed, Unreachable
from kafka_replication.model.rights import UNKNOWN_PRINCIPAL, ClusterName

SIDE, CONNECTION = "kafka-replication.side", "kafka-replication.connection"  # beside the client's own settings
# The messages of librdkafka 2.15 and 2.16 if it can make no client of the settings.
_MAKING = "Failed to create admin client: "
_UNUSABLE = re.compile(r"(ssl\.[a-z.]+)(?: failed: | PKCS#12 file: .*?(?=error:)|: .*?(?=error:))(.*)")
_MISSPELT = re.compile(r'No such configuration property: "(.*)"')
_NO_KERBEROS = "No provider for SASL mechanism GSSAPI"
# OpenSSL's reasons for a key that its password does not open. It is only tried: the bytes may look like something else.
_NOT_OPENED = re.compile("PEM lib|bad decrypt|password|cipherfinal|asn1")
_SETTING = re.compile(r"[a-z][a-z0-9_.]*[a-z0-9]")
_KEYS, _KEY_PASSWORD = ("ssl.key.location", "ssl.key.pem"), "ssl.key.password"
_ALSO_TEXT = ("ssl.key.location", "ssl.certificate.location", "ssl.ca.location")  # or as .pem
_STORE, _STORE_PASSWORD = "ssl.keystore.location", "ssl.keystore.password"
_OWN_CERTIFICATE = ("ssl.certificate.location", "ssl.certificate.pem", "ssl.keystore.location")
# The event is complete; a probe would only add that the port is open.
_SAID_IT_ALL = (causes.LOGIN_REFUSED, causes.MECHANISM_NOT_ENABLED, causes.CLIENT_CERTIFICATE_REFUSED)

Diagnosis = Mapping[str, ConnectCause]  # by address


def name_of(settings: Mapping[str, Any]) -> ClusterName:
    """The name of the cluster in messages."""
    return ClusterName(
        str(settings.get("bootstrap.servers", "")), settings.get(SIDE, ""), str(settings.get(CONNECTION, ""))
    )


def principal_of(settings: Mapping[str, Any]) -> str:
    """The client's principal for the brokers, if its settings show it."""
    protocol = str(settings.get("security.protocol", "plaintext")).upper()
    if protocol.startswith("SASL"):
        return f"User:{settings['sasl.username']}" if settings.get("sasl.username") else UNKNOWN_PRINCIPAL
    return UNKNOWN_PRINCIPAL if any(name in settings for name in _OWN_CERTIFICATE) else "User:ANONYMOUS"


def look(settings: Mapping[str, Any], reported: Mapping[str, str]) -> Diagnosis:
    """The causes at the bootstrap addresses that have one. ``reported`` is the newest error of each address."""
    bootstrap = addresses(settings)
    with ThreadPoolExecutor(max(1, len(bootstrap))) as threads:
        diagnosis = dict(
            zip(
                bootstrap,
                threads.map(lambda address: _cause(address, reported.get(address, ""), settings), bootstrap),
                strict=True,
            )
        )
    return {address: cause for address, cause in diagnosis.items() if cause is not None}


def is_final(settings: Mapping[str, Any], diagnosis: Diagnosis) -> bool:
    """True if no address can ever work with these settings."""
    bootstrap = addresses(settings)
    return bool(bootstrap) and all(address in diagnosis and diagnosis[address].is_final for address in bootstrap)


def _cause(address: str, said: str, settings: Mapping[str, Any]) -> ConnectCause | None:
    cause = causes.of_text(said)
    if cause in _SAID_IT_ALL:
        return _with_details(cause, said, settings)
    seen = probe(address, settings)
    if cause is not None and (seen is None or (cause is causes.CERTIFICATE_NOT_VERIFIED and not seen.is_final)):
        resolved = cause is causes.NAME_NOT_RESOLVED  # the probe found the address
        return replace(_with_details(cause, said, settings), is_final=cause.is_final and not resolved)
    return seen


def _with_details(cause: ConnectCause, said: str, settings: Mapping[str, Any]) -> ConnectCause:
    """The cause with details of the connection, and with the message."""
    if cause is causes.CLIENT_CERTIFICATE_REFUSED and not any(name in settings for name in _OWN_CERTIFICATE):
        cause = causes.CLIENT_CERTIFICATE_MISSING
    if cause in (causes.LOGIN_REFUSED, causes.LOGIN_FAILED) and _mechanism(settings) == "OAUTHBEARER":
        cause = causes.TOKEN_REFUSED
    what = cause.what
    if cause is causes.LOGIN_REFUSED:
        mechanism = _mechanism(settings) or "GSSAPI"
        what = f"{what} of {settings.get('sasl.username', 'this client')!r} by {mechanism}"
    return replace(cause, what=f"{what} ({said})")


def _mechanism(settings: Mapping[str, Any]) -> object:
    return settings.get("sasl.mechanism") or settings.get("sasl.mechanisms")


def error_of(
    settings: Mapping[str, Any], diagnosis: Diagnosis, otherwise: str, waited: float | None = None
) -> ReplicationError:
    """The error. ``otherwise`` is the text if no cause is known; ``waited`` is in seconds."""
    cluster = name_of(settings)
    if not diagnosis:
        return Unreachable(
            f"cannot reach {cluster} within {waited or 0:.0f} s: {otherwise}",
            "check the address, port and security settings of the connection, and that the brokers run",
        )
    first = next((cause for cause in diagnosis.values() if cause.is_final), next(iter(diagnosis.values())))
    several = len(addresses(settings)) > 1
    said = "; ".join(f"{address}: {cause.what}" if several else cause.what for address, cause in diagnosis.items())
    if is_final(settings, diagnosis):
        return first.kind(f"{cluster}: {said}", first.remedy)
    return Unreachable(f"cannot reach {cluster} within {waited or 0:.0f} s: {said}", first.remedy)


def unusable(settings: Mapping[str, Any], reason: str) -> ReplicationError:
    """The error if no client can be made of the settings: the refused setting, and the remedy."""
    cluster, reason = name_of(settings), reason.strip().replace(_MAKING, "")
    # A setting that names a file may have a PEM text, which can be a key and must not be shown (RFC 7468).
    files = (name for name in settings if name.startswith("ssl.") and name.endswith(".location"))
    if name := next((name for name in files if "-----BEGIN" in str(settings[name])), None):
        text = f"the text into {name.replace('.location', '.pem')}, or " if name in _ALSO_TEXT else ""
        return TlsFailed(
            f"{cluster}: {name} has to name a file, but has the content of one",
            f"put {text}the file's name into {name}",
        )
    if match := _UNUSABLE.search(reason):
        return _unusable_tls(settings, match[1], match[2], reason)
    if _STORE_PASSWORD in reason and _STORE in settings and not settings.get(_STORE_PASSWORD):
        return _wrong_password(settings, _STORE, _STORE_PASSWORD, reason)
    extra = f"the extra of connection {cluster.connection!r}" if cluster.connection else "the connection's extra"
    if match := _MISSPELT.search(reason):
        near = setting_names.near(match[1])
        question = f", did you mean {near}?" if near else ""
        return BadInput(
            f"{cluster}: {match[1]} is no setting of the client{question}", f"correct or remove {match[1]} in {extra}"
        )
    if _NO_KERBEROS in reason:
        unset = "" if _mechanism(settings) else ", as the connection does not set it"
        return BadInput(
            f"{cluster}: this client has no Kerberos (sasl.mechanism is GSSAPI{unset})",
            f"set sasl.mechanism in {extra}, or install a confluent-kafka that is built with Kerberos, see"
            " docs/connections.md",
        )
    name = next((word for word in _SETTING.findall(reason) if word in settings or word in setting_names.NAMES), None)
    return BadInput(
        f"{cluster}: the client settings are not usable: {reason}", f"correct {name or 'the settings'} in {extra}"
    )


def _unusable_tls(settings: Mapping[str, Any], name: str, why: str, reason: str) -> TlsFailed:
    """The error for a file or text of the TLS settings. ``name`` is its setting."""
    value, cluster, remedy = str(settings.get(name, "")), name_of(settings), causes.SETTING_UNUSABLE.remedy
    is_file = name.endswith(".location")
    if is_file and not Path(value).is_file():
        return TlsFailed(f"{cluster}: {name} names the file {value}, which does not exist on this machine", remedy)
    shown = f" ({value})" if is_file else ""
    if "key values mismatch" in why:
        cause = causes.KEY_OF_ANOTHER_CERTIFICATE
        return TlsFailed(f"{cluster}: the key in {name}{shown} does not belong to the certificate", cause.remedy)
    if name == _STORE and "mac verify failure" in why:
        return _wrong_password(settings, name, _STORE_PASSWORD, why)
    may_be_closed = not settings.get(_KEY_PASSWORD) or _NOT_OPENED.search(why)
    if name in _KEYS and may_be_closed and _has_password(value, is_file=is_file):
        return _wrong_password(settings, name, _KEY_PASSWORD, why)
    return TlsFailed(f"{cluster}: {name}{shown} cannot be used: {reason}", remedy)


def _has_password(key: str, *, is_file: bool) -> bool:
    """True if a key is encrypted. Its PEM shows it (RFC 7468, section 11; RFC 1421, section 4.6.1.1)."""
    try:
        return "ENCRYPTED" in (Path(key).read_text(errors="replace") if is_file else key)
    except OSError:
        return False


def _wrong_password(settings: Mapping[str, Any], name: str, password: str, why: str) -> TlsFailed:
    shown = f" ({settings[name]})" if name.endswith(".location") else ""
    thing = f"{'file' if name == _STORE else 'key'} in {name}{shown}"
    what = (
        f"{password} is not the password of the {thing}: {why}"
        if settings.get(password)
        else f"the {thing} has a password, and the connection has none"
    )
    return TlsFailed(f"{name_of(settings)}: {what}", causes.KEY_PASSWORD_WRONG.remedy)
