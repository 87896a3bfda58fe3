"""What a client's connections report by themselves: librdkafka tells it to ``error_cb``, not to the call that waits."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient

# As in: sasl_ssl://127.0.0.1:9094/bootstrap: SASL authentication error: ... (after 302ms in state AUTH_REQ)
_SAID = re.compile(r"^(?:\w+://)?(?P<address>[^/\s]+)/\w+: (?P<what>.*?)(?: \(after \d+ms.*)?$", re.DOTALL)


class Heard:
    """A client's ``error_cb``: the newest error of each broker's address. The client calls it when it is polled."""

    def __init__(self, also: Callable[[KafkaError], Any] | None = None) -> None:
        self._also = also  # the connection's own callback
        self.by_address: dict[str, str] = {}
        self.anything = False

    def __call__(self, error: KafkaError) -> None:
        if said := _SAID.match(error.str()):
            self.by_address[said["address"]] = said["what"]
        self.anything = True
        if self._also is not None:
            self._also(error)


class HearingAdmin(AdminClient):
    """An admin client that keeps what its connections report."""

    heard: Heard


class HearingConsumer(Consumer):
    """A consumer that does."""

    heard: Heard


class HearingProducer(Producer):
    """A producer that does."""

    heard: Heard
