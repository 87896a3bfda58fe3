"""Signed files of a certificate: a JSON file and an HTML page, each with an Ed25519 signature over its exact bytes.

The JSON file is ``{"certificate":...,"public_key":"<hex>","signature":"<hex>"}`` and a newline; signed is what stands
before ``,"signature":``. The page ends with ``<!-- signature: <hex> key: <hex> -->`` and a newline; signed is what
stands before that comment. Without a key both hex texts are empty.

This module and ``wire`` alone import cryptography: whoever signs nothing does not need it.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kafka_replication.model.errors import BadInput
from kafka_replication.model.offsets import dump
from kafka_replication.runtime.extras import install

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

SIGNING_KEY: Final = "KAFKA_REPLICATION_SIGNING_KEY"  # the name of the private key, as `--key` has it
CONNECTION: Final = "connection:"  # before the id of a connection
_PEM: Final = re.compile(r"-----BEGIN PRIVATE KEY-----|-----END PRIVATE KEY-----|\s")
_JSON = re.compile(
    rb'(\{"certificate":(.*),"public_key":"((?:[0-9a-f]{64})?)"),"signature":"((?:[0-9a-f]{128})?)"\}\n', re.DOTALL
)
_PAGE = re.compile(rb"(.*)<!-- signature: ((?:[0-9a-f]{128})?) key: ((?:[0-9a-f]{64})?) -->\n", re.DOTALL)
_DER = bytes.fromhex("302a300506032b6570032100")  # of every Ed25519 public key before its 32 bytes (RFC 8410)


def fingerprint(key: bytes) -> str:
    """SHA-256 of the public key in DER, as ``openssl pkey -pubin -outform DER | sha256sum`` prints it."""
    return hashlib.sha256(_DER + key).hexdigest()


def signing_key(named: str, secret: Callable[[str], str]) -> Ed25519PrivateKey | None:
    """The private key of this PEM file, or of ``connection:<id>``, whose password ``secret`` gives; else of the one
    that `SIGNING_KEY` names. None without both. Raises BadInput, ConnectionMissing.
    """
    named = named or os.environ.get(SIGNING_KEY, "")
    if not named:
        return None
    if named.startswith(CONNECTION):  # a field of one line loses the line breaks of a PEM file
        lines = _PEM.sub("", secret(named.removeprefix(CONNECTION)))
        pem = f"-----BEGIN PRIVATE KEY-----\n{lines}\n-----END PRIVATE KEY-----\n".encode()
    else:
        pem = _read(named, "private")
    key: Ed25519PrivateKey = _loaded(named, pem, private=True)
    return key


def known_key(file: Path | None, secret: Callable[[str], str]) -> bytes | None:
    """The public key of this PEM file, else that of the own private key; None if none is known. Raises as
    `signing_key`.
    """
    if file is not None:
        return bytes(_loaded(str(file), _read(str(file), "public"), private=False).public_bytes_raw())
    own = signing_key("", secret)
    return own.public_key().public_bytes_raw() if own else None


_REMEDY: Final = "make one with: openssl genpkey -algorithm ed25519 -out signing.pem; see docs/certificates.md"


def _read(file: str, kind: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as e:
        raise BadInput(f"the {kind} key {file} cannot be read: {e.strerror}", _REMEDY) from e


def _loaded(named: str, pem: bytes, *, private: bool) -> Any:
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as e:
        raise BadInput("signatures need the package cryptography", install("cryptography")) from e
    kind = "private" if private else "public"
    try:
        load: Any = serialization.load_pem_public_key
        key = serialization.load_pem_private_key(pem, None) if private else load(pem)
    except TypeError as e:
        raise BadInput(f"the {kind} key {named} has a password", "store it without one, readable for you alone") from e
    except (ValueError, UnsupportedAlgorithm) as e:
        raise BadInput(f"{named} is not a {kind} key in PEM form", _REMEDY) from e
    if not isinstance(key, ed25519.Ed25519PrivateKey if private else ed25519.Ed25519PublicKey):
        raise BadInput(f"{named} is not a {kind} key of Ed25519", _REMEDY)
    return key


def _hex(key: Ed25519PrivateKey | None, signed: bytes) -> tuple[bytes, bytes]:
    """The public key and the signature."""
    if key is None:
        return b"", b""
    return key.public_key().public_bytes_raw().hex().encode(), key.sign(signed).hex().encode()


def signed_json(certificate: Any, key: Ed25519PrivateKey | None) -> bytes:
    """The JSON file. ``certificate`` consists of JSON objects and lists."""
    signed = b'{"certificate":%s,"public_key":"%s"' % (dump(certificate), _hex(key, b"")[0])
    return b'%s,"signature":"%s"}\n' % (signed, _hex(key, signed)[1])


def signed_page(page: str, key: Ed25519PrivateKey | None) -> bytes:
    """The page with the comment that ends it."""
    public, signature = _hex(key, page.encode())
    return b"%s<!-- signature: %s key: %s -->\n" % (page.encode(), signature, public)


def read_json(data: bytes) -> tuple[bytes, bytes]:
    """The certificate as JSON, and the public key that signed it; empty if it is not signed. Raises ValueError if a
    byte was changed.
    """
    if (found := _JSON.fullmatch(data)) is None:
        raise ValueError("it does not have the form of a certificate")
    signed, content, key, signature = found.groups()
    return content, _verified(signed, key, signature)


def read_page(data: bytes) -> bytes:
    """The public key that signed the page; empty if it is not signed. Raises ValueError if a byte was changed."""
    if (found := _PAGE.fullmatch(data)) is None:
        raise ValueError("it does not end as a page of a certificate does")
    signed, signature, key = found.groups()
    return _verified(signed, key, signature)


def _verified(signed: bytes, key: bytes, signature: bytes) -> bytes:
    if not key and not signature:
        return b""
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError as e:
        raise BadInput("signatures need the package cryptography", install("cryptography")) from e
    public = bytes.fromhex(key.decode())
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(bytes.fromhex(signature.decode()), signed)
    except (InvalidSignature, ValueError) as e:
        raise ValueError("its signature is not that of its content: it was changed") from e
    return public
