"""Certificates for tests: an authority of the test's own, and certificates that it signs, valid for as long as a test says."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from stack.ports import LOOPBACK

FOR_LONG = timedelta(days=1)
_EARLIER = timedelta(minutes=5)


class Authority:
    """Signs certificates. ``file`` is its own certificate (PEM), which clients and brokers trust."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.file = folder / "authority.pem"
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("an authority of the tests")
        now = datetime.now(UTC)
        own = _builder(self._name, self._name, self._key, now - _EARLIER, now + FOR_LONG).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self.file.write_bytes(own.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM))

    def issue(self, file: Path, name: str, valid: timedelta = FOR_LONG) -> datetime:
        """Write a private key and its certificate for ``name`` and the loopback address into one PEM file.

        Returns when it expires, to the second.
        """
        key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC).replace(microsecond=0)
        expires = now + valid
        address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(LOOPBACK))])
        certificate = (
            _builder(_name(name), self._name, key, now - _EARLIER, expires)
            .add_extension(address, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        new = file.with_suffix(".new")
        new.write_bytes(private + certificate.public_bytes(Encoding.PEM))
        new.replace(file)
        return expires


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, begins: datetime, expires: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(expires)
    )
