"""Records of the topic `_schemas` as a Confluent Schema Registry writes them."""

from __future__ import annotations

import json
from typing import Any

Pair = tuple[bytes | None, bytes | None]
NOOP: Pair = b'{"keytype":"NOOP","magic":0}', None


def registered(subject: str, version: int, id_: int, schema: str, *, soft: bool = False, **more: Any) -> Pair:
    """``soft``: deleted, so that nobody registers against it, and still there for readers."""
    value = {"subject": subject, "version": version, "id": id_, **more, "schema": schema, "deleted": soft}
    return _key(subject, version), _json(value)


def deleted(subject: str, version: int) -> Pair:
    """Deleted for good."""
    return _key(subject, version), None


def delete_subject(subject: str, version: int) -> Pair:
    key = {"keytype": "DELETE_SUBJECT", "subject": subject, "magic": 0}
    return _json(key), _json({"subject": subject, "version": version})


def config(level: str) -> Pair:
    return _json({"keytype": "CONFIG", "subject": None, "magic": 0}), _json({"compatibilityLevel": level})


def _key(subject: str, version: int) -> bytes:
    return _json({"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1})


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
