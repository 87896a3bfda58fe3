"""Makes the callbacks of a client in the process of the client: a name can be sent to Spark's executors, a function
cannot.

The rules are those of `KafkaBaseHook` in apache-airflow-providers-apache-kafka 2.1.0: a callback is a dotted path,
brokers of Google's managed Kafka get Google's token, and brokers of Amazon MSK that ask for OAUTHBEARER get a token of
AWS IAM. Reading the connection has already checked that a path is allowed.

Keeps the errors of a client's connections, which librdkafka passes to ``error_cb`` and not to the call that waits.

It also finds those that librdkafka passes to nobody.

Measures the effect of the brokers' quotas: librdkafka reports how long a broker makes a client wait.
"""

from __future__ import annotations

import base64
import importlib
import json
import logging
import re
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from datetime import UTC
from functools import partial
from typing import Any

from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    ThrottleEvent,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo  # type: ignore[attr-defined]  # re-exported without saying so

from kafka_replication.connections import CALLBACKS
from kafka_replication.kafka.causes import of_text
from kafka_replication.model.errors import BadInput
from kafka_replication.runtime import stopping
from kafka_replication.runtime.events import Event, log_event

log = logging.getLogger(__name__)

Token = tuple[str, float]  # the token, and when it expires, in seconds since the epoch

_MSK_SERVER = re.compile(
    r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?(?::\d+)?(?=$|[,\s])", re.IGNORECASE
)


def resolved(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with functions in place of dotted paths, and with the cloud's token callback if it needs one.

    Raises BadInput naming the path that cannot be imported.
    """
    functions = {name: _load(name, config[name]) for name in CALLBACKS if isinstance(config.get(name), str)}
    settings = {**config, **functions}
    if (tokens := token_callback(config)) is not None:
        settings["oauth_cb"] = tokens
    return settings


def token_callback(config: Mapping[str, Any]) -> Callable[[Any], Any] | None:
    """The function that gives the token of OAUTHBEARER: the connection's own, or that of the cloud; None without one.

    Raises BadInput naming the path, or the package, that cannot be imported.
    """
    servers, own = str(config.get("bootstrap.servers", "")), config.get("oauth_cb")
    region, mechanism = _MSK_SERVER.search(servers), config.get("sasl.mechanism") or config.get("sasl.mechanisms")
    if "cloud.goog" in servers and "managedkafka" in servers:
        return _google_callback()
    if "oauth_cb" not in config and region and mechanism == "OAUTHBEARER":
        return _msk_callback(region[1].lower())
    return _load("oauth_cb", own) if isinstance(own, str) else own


def _load(name: str, path: str) -> Callable[..., Any]:
    module, _, attribute = path.rpartition(".")
    try:
        function = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError, TypeError) as e:
        raise BadInput(
            f"{name} is {path!r}, which cannot be imported: {e}",
            "install its package where Airflow's tasks run, and on every Spark worker",
        ) from e
    if not callable(function):
        raise BadInput(f"{name} is {path!r}, which is not a function", "name a function in the connection's extra")
    return function  # type: ignore[no-any-return]


def _missing(package: str, cluster: str) -> BadInput:
    return BadInput(
        f"the connection is to {cluster}, whose tokens need the package {package}",
        f"install {package} where Airflow's tasks run, and on every Spark worker",
    )


def _msk_callback(region: str) -> Callable[[str], Token]:
    try:
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
    except ImportError as e:
        raise _missing("aws-msk-iam-sasl-signer-python", "Amazon MSK") from e
    return partial(_msk_token, MSKAuthTokenProvider, region)


def _msk_token(provider: Any, region: str, _: str) -> Token:
    token, expiry_ms = provider.generate_auth_token(region)
    return token, expiry_ms / 1000


def _google_callback() -> Callable[[str], Token]:
    """Use the machine's default credentials, because Spark's executors cannot read Airflow's Google connection."""
    try:
        import google.auth
        from google.auth.exceptions import DefaultCredentialsError
        from google.auth.transport.requests import Request
    except ImportError as e:
        raise _missing("google-auth", "Google's managed Kafka") from e
    try:
        credentials, _ = google.auth.default(scopes=["https://www.googleapis.com/auth/cloud-platform"])
    except DefaultCredentialsError as e:
        raise BadInput(
            f"there are no default credentials for Google's managed Kafka: {e}",
            "provide them where Airflow's tasks run and on every Spark worker, see docs/connections.md",
        ) from e
    return partial(_google_token, credentials, Request)


def _google_token(credentials: Any, request: Callable[[], Any], _: str) -> Token:
    """A token of three parts, as Google's broker reads it: a header, claims, and the access token as the signature."""
    if not credentials.valid:
        credentials.refresh(request())
    expiry = credentials.expiry.replace(tzinfo=UTC).timestamp()  # google-auth keeps UTC without a zone
    claims = {
        "exp": expiry,
        "iss": "Google",
        "iat": time.time(),
        "scope": "kafka",
        "sub": credentials.service_account_email,
    }
    parts = (json.dumps({"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}), json.dumps(claims), credentials.token)
    return ".".join(base64.urlsafe_b64encode(part.encode()).decode().rstrip("=") for part in parts), expiry


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


LOOK = 2.0  # seconds for the leaders of one topic


class ReportingAdmin(AdminClient):
    """An admin client that keeps the errors of its connections."""

    reported: ReportedErrors


class ReportingConsumer(Consumer):
    """A consumer that keeps the errors of its connections, and has no second to wait for a topic that is new to it."""

    reported: ReportedErrors
    _topics: frozenset[str] = frozenset()  # that it has read

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Once it is connected, librdkafka 2.16 asks for the leaders of a new topic when it next looks at all topics,
        which it does each second (`rd_kafka_topic_scan_all`).
        """
        topics = frozenset(partition.topic for partition in partitions)
        if self._topics and len(new := topics - self._topics) == 1:
            with suppress(KafkaException):  # the look comes all the same
                self.list_topics(topic=min(new), timeout=LOOK)
        self._topics |= topics
        super().assign(partitions)


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


SAY_EVERY = 10.0  # seconds


class Throttling:
    """Adds up the seconds that one cluster makes one task wait. Clients call it when they are polled."""

    def __init__(self, what: str, side: str) -> None:
        self._what, self._side = what, side
        self.seconds = 0.0
        self._said = 0.0

    def listening(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The client settings with this as their callback, unless the connection has its own."""
        return {"throttle_cb": self, **config}

    def __call__(self, event: ThrottleEvent) -> None:
        self.add(event.throttle_time, f"{event.broker_id} ({event.broker_name})")

    def add(self, seconds: float, broker: str) -> None:
        self.seconds += seconds
        if seconds and time.monotonic() - self._said >= SAY_EVERY:
            self._said = time.monotonic()
            message = "%s: a quota of the %s makes this client wait: %.1f s for broker %s, %.1f s so far"
            log_event(
                log, logging.INFO, Event.THROTTLED, message, self._what, self._side, seconds, broker, self.seconds
            )
