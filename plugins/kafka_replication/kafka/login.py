"""The login of our own connections to brokers, from the settings of a confluent-kafka client."""

from __future__ import annotations

import os
import threading
from functools import lru_cache
from typing import Any

from kafka_replication.kafka import callbacks
from kafka_replication.kafka.clients import ClientConfig
from kafka_replication.kafka.connect_diagnosis import name_of
from kafka_replication.model.errors import BadInput, ReplicationError, Unreachable
from kafka_replication.wire.login import Security, is_about_connecting, tokens_of
from kafka_replication.wire.tls import Unsupported

PATIENCE = 10.0  # seconds for a token, as confluent-kafka has


def unsupported(config: ClientConfig) -> str | None:
    """The reason why no connection can be made with these settings; None if one can be made."""
    try:
        security_of(config)
    except (Unsupported, BadInput) as e:
        return str(e)
    return None


def security_of(config: ClientConfig) -> Security:
    """The security for these settings; the same value for the same settings, so that connections share a token.

    Raises Unsupported, and BadInput for a callback that cannot be imported.
    """
    settings = {name: value for name, value in config.items() if is_about_connecting(name) or name == _SERVERS}
    with _making:
        return _security(tuple(sorted(settings.items())))


def why_no_token(config: ClientConfig) -> ReplicationError:
    """The error of the function of tokens, which is called once more: confluent-kafka shows none."""
    function, cluster = callbacks.token_callback(config), name_of(config)
    if function is not None:
        try:
            tokens_of(function, config).current(PATIENCE)
        except ReplicationError as e:
            return type(e)(f"{cluster}: {e.what}", e.remedy)
    return Unreachable(f"{cluster}: there was no token for the login within {PATIENCE:.0f} s", "run again")


_SERVERS = "bootstrap.servers"  # those of a cloud say where tokens come from
_making = threading.Lock()


@lru_cache(maxsize=8)  # loading the authorities of a system takes 20 ms
def _security(settings: tuple[tuple[str, Any], ...]) -> Security:
    config = dict(settings)
    return Security.of(config, callbacks.token_callback(config))


def _forget_logins() -> None:
    global _making
    _making = threading.Lock()  # another thread of the parent may have held it, or one inside of what is cached
    _security.cache_clear()


os.register_at_fork(after_in_child=_forget_logins)
