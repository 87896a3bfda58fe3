"""Keeps the errors of a client's connections, which librdkafka passes to ``error_cb`` and not to the call that waits.

It also finds those that librdkafka passes to nobody.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo  # type: ignore[attr-defined]  # re-exported without saying so

from kafka_replication.kafka.diagnosis.causes import of_text
from kafka_replication.runtime import stopping

# As in: sasl_ssl://127.0.0.1:9094/bootstrap: SASL authentication error: ... (after 302ms in state AUTH_REQ)
_SAID = re.compile(r"^(?:\w+://)?(?P<address>[^/\s]+)/\w+: (?P<what>.*?)(?: \(after \d+ms.*)?$", re.DOTALL)


class ReportedErrors:
    """A client's ``error_cb``: the newest error of each broker's address, as ``code: message``. It is called when the
    client is polled.
    """

    def __init__(self, settings: Mapping[str, Any] = {}, also: Callable[[KafkaError], Any] | None = None) -> None:
        self.settings = settings  # of the connection
        self._also = also  # the connection's own callback
        self.final_error = False  # one came that only a change of settings seems to heal
        self.by_address: dict[str, str] = {}
        self.has_any = False

    def __call__(self, error: KafkaError) -> None:
        if said := _SAID.match(error.str()):
            self.by_address[said["address"]] = what = f"{error.name()}: {said['what']}"
            cause = of_text(what)
            self.final_error |= cause is not None and cause.is_final
        self.has_any = True
        if self._also is not None:
            self._also(error)


class ReportingAdmin(AdminClient):
    """An admin client that keeps the errors of its connections."""

    reported: ReportedErrors


class ReportingConsumer(Consumer):
    """A consumer that keeps the errors of its connections."""

    reported: ReportedErrors


class ReportingProducer(Producer):
    """A producer that keeps the errors of its connections."""

    reported: ReportedErrors


def answer_of(future: Future[ListOffsetsResultInfo], seconds: float) -> ListOffsetsResultInfo:
    """The answer for one partition. Raises KafkaException, also if its broker did not answer.

    librdkafka 2.16 drops that broker's error: its partitions have no error, and no offset.
    """
    try:
        answer = future.result(seconds)
    except RuntimeError as error:
        stopping.raise_again(error)
        raise
    if answer.offset == OFFSET_INVALID:
        raise KafkaException(KafkaError(KafkaError._NO_OFFSET, "its broker did not answer"))
    return answer
