"""The TLS context of a connection, from the settings of a confluent-kafka client. Files and texts mean what they mean
to librdkafka (its CONFIGURATION.md).

The error for settings of a connection that this package cannot follow.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from kafka_replication.runtime.extras import install


class Unsupported(ValueError):
    """A setting that this package cannot follow, or whose value is of no use. The message names the setting, shows no
    value that may be secret, and says what helps.
    """

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what}; {remedy}")
        self.what, self.remedy = what, remedy


SETTINGS = frozenset(
    {
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.key.location",
        "ssl.key.pem",
        "ssl.key.password",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.crl.location",
        "ssl.cipher.suites",
        "ssl.endpoint.identification.algorithm",
        "enable.ssl.certificate.verification",
    }
)


def context(config: Mapping[str, Any]) -> ssl.SSLContext:
    """The context for brokers. Raises Unsupported, which names the setting that cannot be used, and never its value."""
    made = trusting(config, "ssl")
    made.check_hostname = str(config.get("ssl.endpoint.identification.algorithm", "https")).lower() == "https"
    if str(config.get("enable.ssl.certificate.verification", "true")).lower() == "false":
        made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    if revoked := config.get("ssl.crl.location"):
        with _using("ssl.crl.location"):
            made.load_verify_locations(cafile=revoked)
        made.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    if ciphers := config.get("ssl.cipher.suites"):
        with _using("ssl.cipher.suites"):
            made.set_ciphers(str(ciphers))
    password = str(config.get("ssl.key.password", ""))  # without one, OpenSSL would ask for it on the terminal
    with ExitStack() as stack:
        certificate = _file(stack, config, "ssl.certificate")
        if certificate is not None:
            key = _file(stack, config, "ssl.key")
            with _using("ssl.key.* or ssl.certificate.*"):
                made.load_cert_chain(certificate, key, password)
    if store := config.get("ssl.keystore.location"):
        with _using("ssl.keystore.location", "ssl.keystore.password"), ExitStack() as stack:
            content = _pem_of(Path(store).read_bytes(), str(config.get("ssl.keystore.password", "")))
            made.load_cert_chain(stack.enter_context(_private_file(content)), None, "")
    return made


def trusting(config: Mapping[str, Any], prefix: str) -> ssl.SSLContext:
    """A context that trusts the authorities of ``<prefix>.ca.location`` and ``<prefix>.ca.pem``; without both, those of
    the system.
    """
    place, text = str(config.get(f"{prefix}.ca.location", "probe")), config.get(f"{prefix}.ca.pem")
    if place == "probe" and not text:
        return ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if place != "probe":
        with _using(f"{prefix}.ca.location"):
            folder = Path(place).is_dir()
            made.load_verify_locations(capath=place if folder else None, cafile=None if folder else place)
    if text:
        with _using(f"{prefix}.ca.pem"):
            made.load_verify_locations(cadata=str(text))
    return made


def _file(stack: ExitStack, config: Mapping[str, Any], name: str) -> str | None:
    """The file of ``<name>.location``, or one with the text of ``<name>.pem`` while ``stack`` is open."""
    if text := config.get(f"{name}.pem"):
        return stack.enter_context(_private_file(str(text).encode()))
    place = config.get(f"{name}.location")
    return None if place is None else str(place)


@contextmanager
def _private_file(content: bytes) -> Iterator[str]:
    """The name of a file with this content, which only this user may read, and which is gone afterwards. OpenSSL's
    function behind `ssl.SSLContext.load_cert_chain` reads nothing but files.
    """
    with NamedTemporaryFile(prefix="kafka-replication-") as file:
        file.write(content)
        file.flush()
        yield file.name


def _pem_of(store: bytes, password: str) -> bytes:
    """The key, the certificate and its chain in a PKCS#12 file."""
    try:
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12
    except ImportError as e:
        raise Unsupported("ssl.keystore.location needs the package cryptography", install("cryptography")) from e
    key, certificate, chain = pkcs12.load_key_and_certificates(store, password.encode())
    if key is None or certificate is None:
        raise ValueError("it has no key with a certificate")
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return b"".join((private, *(one.public_bytes(Encoding.PEM) for one in (certificate, *chain))))


@contextmanager
def _using(*settings: str) -> Iterator[None]:
    """Turn an error into one that names the settings. Python's own may show the file's name, which is the key itself if
    somebody wrote the text where the name belongs.
    """
    try:
        yield
    except Unsupported:
        raise
    except (OSError, ValueError, TypeError) as e:  # TypeError: a PEM text with other characters than ASCII
        reason = getattr(e, "reason", None) or getattr(e, "strerror", None) or str(e)
        raise Unsupported(
            f"{' with '.join(settings)} cannot be used ({reason})",
            "put the file where every client runs, or its text into the connection, see docs/connections.md",
        ) from None
