"""Callbacks that a test's connection names by their dotted path."""

from __future__ import annotations

import base64
import json
import time

PATH = f"{__name__}.unsecured_token"
NO_FUNCTION = 5


def unsecured_token(_: str) -> tuple[str, float]:
    """A token that a broker without a ``sasl.oauthbearer`` validator of its own takes: signed by nobody."""
    now = time.time()
    parts = ({"alg": "none"}, {"sub": "replicator", "iat": now, "exp": now + 600})
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts) + ".", (
        now + 600
    )
