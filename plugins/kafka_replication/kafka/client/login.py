"""The login of our own connections to brokers, from the settings of a confluent-kafka client."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from kafka_replication.kafka.client.clients import ClientConfig
from kafka_replication.wire.security import Security, is_about_connecting


def unsupported(config: ClientConfig) -> str | None:
    """The reason why no connection can be made with these settings; None if one can be made."""
    try:
        security_of(config)
    except (ValueError, OSError) as e:
        return str(e)
    return None


def security_of(config: ClientConfig) -> Security:
    """The security for these settings. Raises ValueError, OSError."""
    return _security(tuple(sorted((name, value) for name, value in config.items() if is_about_connecting(name))))


@lru_cache(maxsize=8)  # loading the authorities of a system takes 20 ms
def _security(settings: tuple[tuple[str, Any], ...]) -> Security:
    return Security.of(dict(settings))
