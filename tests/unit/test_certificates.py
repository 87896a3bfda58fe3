"""Every byte of a certificate counts; the verdict names what is not verified; keys that cannot be used are named."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_replication.api.documents import Certificate, CertifiedDocument
from kafka_replication.documents import adapter, as_json
from kafka_replication.model.errors import BadInput
from kafka_replication.model.offsets import Coverage, OffsetRange
from kafka_replication.reporting import certificate_page, signed
from kafka_replication.reporting.certificate import CheckedCertificate, judged
from kafka_replication.runs import certificate_checks

GOLDEN = Path(__file__).parents[1] / "golden" / "documents" / "1" / "CertifiedDocument.json"
MADE: Certificate = adapter(CertifiedDocument).validate_json(GOLDEN.read_bytes()).certificate
PAIR = (PrivateFormat.PKCS8, NoEncryption())


def secret(connection_id: str) -> str:
    raise AssertionError(f"nobody has named the connection {connection_id}")


@dataclass(frozen=True)
class Files:
    """Both files of a signed certificate, and the public key."""

    json: Path
    page: Path
    public: Path
    private: ed25519.Ed25519PrivateKey

    def write(self, made: Certificate = MADE, key: ed25519.Ed25519PrivateKey | None = None) -> None:
        data = signed.signed_json(as_json(made), key or self.private)
        page = certificate_page.page(made, self.json.name, hashlib.sha256(data).hexdigest(), "key")
        self.json.write_bytes(data)
        self.page.write_bytes(signed.signed_page(page, key or self.private))

    def check(self, path: Path | None = None) -> CheckedCertificate:
        return certificate_checks.check(path or self.json, self.public, secret)[0]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder, private = tmp_path_factory.mktemp("certificate"), ed25519.Ed25519PrivateKey.generate()
    public = folder / "public.pem"
    public.write_bytes(private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return Files(folder / "one.json", folder / "one.html", public, private)


@pytest.fixture(autouse=True)
def whole(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(signed.SIGNING_KEY, raising=False)
    files.write()
    assert files.check().problems == () and files.check(files.page).key == "expected"


def assert_noticed(files: Files, path: Path, changed: bytes) -> None:
    before = path.read_bytes()
    path.write_bytes(changed)
    try:
        assert files.check().problems, changed[-300:]
        other = files.page if path == files.json else files.json
        alone = other.read_bytes()
        other.unlink()  # it is noticed without the other file, too
        assert files.check(path).problems
        other.write_bytes(alone)
    finally:
        path.write_bytes(before)


@settings(max_examples=400)
@given(data=st.data())
def test_one_byte_changed_inserted_or_removed_is_noticed(files: Files, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from([files.json, files.page]))
    content = path.read_bytes()
    edge = st.integers(0, 20) | st.integers(len(content) - 240, len(content))
    at = data.draw(st.integers(0, len(content)) | edge)
    byte = data.draw(st.binary(min_size=1, max_size=1) | st.sampled_from([b" ", b"\n", b"0", b"A"]))
    how = data.draw(st.sampled_from(["changed", "inserted", "removed"]))
    changed = content[:at] + (b"" if how == "removed" else byte) + content[at + (how != "inserted") :]
    if changed != content:
        assert_noticed(files, path, changed)


def test_each_byte_of_the_signature_and_its_case_counts(files: Files) -> None:
    for path in (files.json, files.page):
        content = path.read_bytes()
        for at in range(len(content) - 240, len(content)):
            for bit in (1, 0x20):
                assert_noticed(files, path, content[:at] + bytes([content[at] ^ bit]) + content[at + 1 :])


def test_files_that_do_not_belong_together(files: Files) -> None:
    page = files.page.read_bytes()
    files.write(replace(MADE, run_id="another"))
    files.page.write_bytes(page)
    assert "has another SHA-256" in files.check().problems[0]
    files.write()
    data = files.json.read_bytes()
    files.write(key=ed25519.Ed25519PrivateKey.generate())
    assert files.check().key == "another key"
    files.json.write_bytes(data)
    assert any("not signed by the same key" in problem for problem in files.check().problems)


def test_one_that_is_not_signed_must_be_canonical_all_the_same(files: Files) -> None:
    data = signed.signed_json(as_json(MADE), None)
    assert data.endswith(b'"public_key":"","signature":""}\n')
    files.page.unlink()
    files.json.write_bytes(data)
    assert files.check().key == "not signed" and "it is not signed" in files.check().problems[0]
    assert "is not there" in files.check().notes[0]
    files.json.write_bytes(data.replace(b'"about":', b'"about": ', 1))
    assert "not in canonical JSON" in files.check().problems[0]
    files.json.write_bytes(data.replace(b'"format":1', b'"format":2', 1))
    assert "this version cannot read it" in files.check().problems[0]


def test_a_topic_may_be_called_signature(files: Files) -> None:
    """What is signed ends at the last place of that name."""
    named = replace(MADE, settings={"topics": {"rename": {"orders": "x", "signature": "0" * 128}}})
    files.write(named)
    assert files.check().problems == ()


@pytest.mark.parametrize(
    ("pem", "text"),
    [
        (b"not a key", "is not a private key in PEM form"),
        (ec.generate_private_key(ec.SECP256R1()).private_bytes(Encoding.PEM, *PAIR), "not a private key of Ed25519"),
        (
            ed25519.Ed25519PrivateKey.generate().private_bytes(
                Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
            ),
            "has a password",
        ),
        (None, "cannot be read"),
    ],
    ids=["text", "another kind", "password", "not there"],
)
def test_keys_that_cannot_be_used(tmp_path: Path, pem: bytes | None, text: str) -> None:
    file = tmp_path / "key.pem"
    if pem is not None:
        file.write_bytes(pem)
    with pytest.raises(BadInput, match=text):
        signed.signing_key(str(file), secret)


def test_the_fingerprint_is_that_of_openssl(files: Files) -> None:
    der = files.private.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    assert signed.fingerprint(files.private.public_key().public_bytes_raw()) == hashlib.sha256(der).hexdigest()


RANGE = Coverage.of([OffsetRange(3, 5)])
NOT_VERIFIED: list[tuple[dict[str, Any], str]] = [
    ({"pending": RANGE}, "[3, 5) were copied and not verified"),
    ({"missed": RANGE, "gone": RANGE}, "[3, 5) are no longer on the target, and nothing explains it"),
    ({"undecided": 2}, "2 records that could not be copied wait for a decision"),
    ({"generation": 0}, "nothing of it was copied"),
    ({"wanted_until": 10_000}, "10000 was asked for"),
    ({"error": "the topic was created again"}, "the topic was created again"),
]


@pytest.mark.parametrize(("found", "text"), NOT_VERIFIED, ids=lambda value: str(value)[:30])
def test_a_partition_that_is_not_verified_is_named_in_the_verdict(found: dict[str, Any], text: str) -> None:
    [good, *_] = MADE.partitions
    assert judged([good], ())["verified"], "else this test shows nothing"
    said = judged([good, replace(good, partition=7, **found)], ())
    assert not said["verified"] and said["verdict"].startswith("Not everything is verified: orders-7: ")
    assert text in said["verdict"] and said["reasons"] == (said["verdict"][28:-1],)


def test_the_verdict_stays_one_sentence_with_many_reasons() -> None:
    [good, *_] = MADE.partitions
    said = judged([replace(good, partition=number, undecided=1) for number in range(30)], ())
    assert "and 25 more reasons" in said["verdict"] and len(said["reasons"]) == 30


def test_what_is_not_proved_is_a_remark() -> None:
    [good, *_] = MADE.partitions
    for found, text in (
        ({"verified_by": "count"}, "counted"),
        ({"expired": RANGE}, "have expired"),
        ({"gone": RANGE}, "its retention, or an approval, explains it"),
        ({"status": None}, None),
    ):
        said = judged([replace(good, **found)], ())
        assert said["verified"] and (text is None or any(text in remark for remark in said["remarks"]))


def test_the_page_shows_texts_of_others_as_texts_and_needs_nothing_from_elsewhere() -> None:
    said = replace(MADE, about="<script>alert(1)</script>", settings={"filter": '<img src="x">'})
    page = certificate_page.page(said, "one.json", "0" * 64, None)
    assert "<script" not in page and "<img" not in page and "src=" not in page.replace("src=\\&quot;", "")
    assert "NOT SIGNED" in page and "@media print" in page and "&lt;script&gt;" in page
