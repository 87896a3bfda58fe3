"""Creates clients. The settings that the protocol needs always override those of a connection.

Clients are created in the process that uses them, because they do not survive a fork. Compare them with ``is None``: an
idle client is falsy.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Mapping
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from kafka_replication.kafka import callbacks, connect_diagnosis
from kafka_replication.kafka.callbacks import ReportedErrors, ReportingAdmin, ReportingConsumer, ReportingProducer
from kafka_replication.kafka.connect_diagnosis import CONNECTION, SIDE
from kafka_replication.ledger.entries import POSITIONS
from kafka_replication.model.errors import BadInput, ReplicationError, Unreachable
from kafka_replication.model.rights import Login, Side
from kafka_replication.runtime import stopping

log = logging.getLogger(__name__)
ClientConfig = Mapping[str, Any]
C = TypeVar("C", ReportingConsumer, ReportingProducer, ReportingAdmin)

_NO_TOKEN = "OAuth token not set"  # confluent-kafka, where a function of tokens fails, for whatever reason
REFUSED = ("transactional.id", "group.id", "group.instance.id")
CONSUMER: dict[str, Any] = {
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "check.crcs": True,
    # The most. It also limits what a zstd batch may unpack to: a larger one would count as corrupted.
    "receive.message.max.bytes": 2_147_483_647,
}
CONSUMER_DEFAULTS: dict[str, Any] = {
    "fetch.message.max.bytes": 4 << 20,
    "fetch.max.bytes": 32 << 20,
    "queued.max.messages.kbytes": 16 << 10,  # 16 MiB of prefetch: 32 MiB cost a worker 30 MB more, and copied no faster
    "queued.min.messages": 50_000,  # of records of 100 bytes 100,000 cost a worker 22 MB more
    "fetch.wait.max.ms": 100,
    "fetch.queue.backoff.ms": 2,  # the default of 1000 ms stalls a fast reader: 127k against 915k records/s
}
PRODUCER: dict[str, Any] = {
    "acks": "all",
    "enable.idempotence": True,
    "allow.auto.create.topics": False,
    "message.max.bytes": 1_000_000_000,  # compares uncompressed sizes: the broker decides
}
PRODUCER_DEFAULTS: dict[str, Any] = {
    "compression.type": "lz4",
    "linger.ms": 20,
    "batch.num.messages": 100_000,
    "queue.buffering.max.messages": 200_000,
    "queue.buffering.max.kbytes": 32 << 10,  # 32 MiB; this limits a worker's memory
}
# A new client gives up its first connection when it learns the brokers' addresses, and waits half as long before the
# next one: the default of 100 ms costs each of them 40 ms. The wait doubles up to reconnect.backoff.max.ms.
CONNECTING_AGAIN = {"reconnect.backoff.ms": 10}
# A client that is not polled keeps every document of its statistics, also without a callback.
STATISTICS = frozenset({"stats_cb", "statistics.interval.ms"})
_ours = {*CONSUMER, *PRODUCER}
_consumer_only = frozenset({*CONSUMER, *CONSUMER_DEFAULTS, "on_commit"})
_producer_only = frozenset(
    {*PRODUCER, *PRODUCER_DEFAULTS, "batch.size", "transaction.timeout.ms", "delivery.timeout.ms", "message.timeout.ms"}
)


def check_connection(name: str, config: ClientConfig, side: Side) -> dict[str, Any]:
    """The connection's client settings and the cluster's name. Raises BadInput for a missing or forbidden setting."""
    if not str(config.get("bootstrap.servers", "")).strip():
        raise BadInput(f"connection {name!r} names no bootstrap.servers", "put it into the connection's extra")
    for key in REFUSED:
        if key in config:
            raise BadInput(
                f"connection {name!r} sets {key}, which the replication sets itself",
                f"remove {key} from the connection's extra",
            )
    for key in sorted(_ours & config.keys()):
        log.warning("connection %s sets %s; the replication's own setting is used instead", name, key)
    return {**{key: value for key, value in config.items() if key not in _ours}, SIDE: side, CONNECTION: name}


def consumer(config: ClientConfig, group: str, **more: Any) -> Consumer:
    """A ``read_committed`` consumer for explicit `assign`. It commits nothing to ``group``."""
    return _consumer(config, {**more, **CONSUMER, "group.id": group})


def uncommitted_consumer(config: ClientConfig, group: str, **more: Any) -> Consumer:
    """A consumer that finds open transactions, or the next record of any kind; never used for copying."""
    ours = {**CONSUMER, "isolation.level": "read_uncommitted", "group.id": group}
    return _consumer(config, {"fetch.wait.max.ms": 5, **more, **ours})


def _consumer(config: ClientConfig, ours: ClientConfig) -> Consumer:
    base = {key: value for key, value in config.items() if key not in _producer_only and key not in CONSUMER}
    return _make(ReportingConsumer, {**CONSUMER_DEFAULTS, **base, **ours})


def producer(config: ClientConfig, **more: Any) -> Producer:
    return acknowledged_producer(config, **{**more, **PRODUCER})


def acknowledged_producer(config: ClientConfig, **ours: Any) -> Producer:
    """A producer without transactions. ``ours``, which sets the acknowledgements, overrides everything else."""
    base = {key: value for key, value in config.items() if key not in _consumer_only and key not in PRODUCER}
    return _make(ReportingProducer, {**PRODUCER_DEFAULTS, **base, **PRODUCER, **ours})


ANSWER = 20.0  # seconds
CONNECTING = 0.6  # of the time of an answer; the rest is left to find out why there is none
FIRST_LOOK, LONGEST_LOOK = 0.25, 4.0  # seconds that one request for metadata may take


def admin(config: ClientConfig, timeout: float = ANSWER, topic: str | None = None) -> AdminClient:
    """An admin client that has its metadata. Without metadata the first list_offsets may stall for seconds.

    It learns that of ``topic``, or on a target of the ledger: a whole cluster may have thousands of topics. The client
    asks for one that does not exist again each second, so it has to be one that is nearly always there. None: of all.

    Raises NotAuthenticated, TlsFailed or NotResolved as soon as no bootstrap address can ever work with these settings,
    and Unreachable after ``timeout`` seconds. Each names the side, the address and the cause.
    """
    client = _make(ReportingAdmin, {**_for_admin(config), "allow.auto.create.topics": False})
    topic = POSITIONS if config.get(SIDE) == "target" else topic
    until, look = time.monotonic() + timeout, FIRST_LOOK
    while True:
        remaining = until - time.monotonic()
        try:
            client.list_topics(topic, timeout=max(0.1, min(look, remaining)))
            return client
        except KafkaException as e:
            client.poll(0)
            if client.reported.has_any or remaining <= look:
                causes = connect_diagnosis.look(config, client.reported.by_address)
                if connect_diagnosis.is_final(config, causes) or remaining <= look:
                    said = "; ".join([_said(e), *client.reported.by_address.values()])
                    raise connect_diagnosis.error_of(config, causes, said, timeout) from e
        look = min(2 * look, LONGEST_LOOK)


TO_CONFIRM = 10.0  # seconds


def made(owner: object, name: str) -> Any:
    """The client, or connection, of a cached property; None if it is not made yet. Nobody makes one to close it."""
    return vars(owner).get(name)


def raise_if_shut_out(client: object) -> None:
    """Raise NotAdmitted if this client cannot succeed any more, because its cluster admits no client with its settings.

    The errors that the client has reported are only a reason to look: they may be over, or concern one broker of many.
    So a new client connects. If there was no such error since the last call, this costs nothing.
    """
    reported = getattr(client, "reported", None)
    if isinstance(client, ReportingAdmin | ReportingProducer):  # a consumer is polled by who reads
        client.poll(0)
    if reported is not None and reported.final_error:
        reported.final_error = False
        with suppress(Unreachable):  # the caller's own wait reports this, and may be repeated
            admin({name: value for name, value in reported.settings.items() if name not in REFUSED}, TO_CONFIRM)


def _for_admin(config: ClientConfig) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key not in _consumer_only | _producer_only | STATISTICS}


def without_statistics(config: ClientConfig) -> ClientConfig:
    """The settings for a client that is not polled regularly: without statistics."""
    return {key: value for key, value in config.items() if key not in STATISTICS}


def login(config: ClientConfig) -> Login:
    """The principal of a client with these settings, and its cluster."""
    return Login(connect_diagnosis.name_of(config), connect_diagnosis.principal_of(config))


_shared: dict[str, Future[AdminClient]] = {}
_inherited: list[object] = []  # a forked process has none of their threads: it must neither use nor free them
_sharing = threading.Lock()  # for the dictionary: no client connects while it is held


def shared_admin(config: ClientConfig, timeout: float = ANSWER, topic: str | None = None) -> AdminClient:
    """The one admin client of this process for a cluster. A forked process creates its own: clients do not survive a
    fork. ``topic``: as for `admin`.

    Raises Unreachable if the cluster does not answer within ``timeout`` seconds when the client is created. Threads
    that ask meanwhile wait for the same attempt, and get its error; a thread that asks later tries again. No thread
    waits for another cluster.
    """
    name = repr(sorted(_for_admin(config).items()))
    while True:
        with _sharing:
            is_first = name not in _shared
            made = _shared.setdefault(name, Future())
        if is_first:
            break
        with suppress(CancelledError):  # who connected was interrupted, which is no answer of the cluster
            return made.result()
    try:
        client = admin({"reconnect.backoff.max.ms": 1000, **config}, timeout, topic)
    except BaseException as error:
        with _sharing:
            _shared.pop(name, None)
        if isinstance(error, ReplicationError):
            made.set_exception(error)
        else:
            made.cancel()
        raise
    made.set_result(client)
    return client


def _forked() -> None:
    global _sharing
    _sharing = threading.Lock()  # another thread of the parent may have held it
    _inherited.append(dict(_shared))
    _shared.clear()


os.register_at_fork(after_in_child=_forked)


def _make(kind: type[C], config: dict[str, Any]) -> C:
    """A client that prints nothing. Important errors in its log are raised as errors.

    Its log lines go to this module's logger when it is polled: the lines that the connection asks for by ``log_level``,
    and the last line of a client that cannot continue, which level 0 has, too. An admin client has no such line. It is
    polled only while it connects; later it prints the lines that were asked for on stderr.
    """
    try:
        asked = config if "stats_cb" in config else without_statistics(config)
        settings = {"log_level": 0, **CONNECTING_AGAIN, **callbacks.resolved(asked)}
        reported = ReportedErrors(config, settings.get("error_cb"))
        theirs = {name: value for name, value in settings.items() if name not in (SIDE, CONNECTION)}
        is_polled: bool = kind is not ReportingAdmin
        more: dict[str, Any] = {"logger": log} if is_polled else {}
        ours: dict[str, Any] = {"error_cb": reported}
        client = kind({**theirs, **ours}, **more)
    except (KafkaException, ValueError, TypeError) as e:
        reason = _said(e) if isinstance(e, KafkaException) else str(e)
        if _NO_TOKEN in reason:
            raise connect_diagnosis.why_no_token(config) from e
        raise connect_diagnosis.unusable(config, reason) from e
    client.reported = reported
    return client


def _said(raised: KafkaException) -> str:
    return f"{raised.args[0].name()}: {raised.args[0].str()}"


def true_error(raised: BaseException, client: Producer) -> KafkaError:
    """The reason why a producer failed. A fatal error shows as ``_FATAL`` or SystemError; aborting raises it.

    A signal that interrupted the producer is raised again.
    """
    stopping.raise_again(raised)
    if isinstance(raised, KafkaException) and raised.args[0].code() != KafkaError._FATAL:
        reason = failure(client) if raised.args[0].code() == KafkaError._STATE else None
        return _copy(raised.args[0]) if reason is None else reason
    try:
        client.abort_transaction(5)
    except KafkaException as reason:
        without_transactions = reason.args[0].code() == KafkaError._NOT_CONFIGURED
        cause = raised if without_transactions and isinstance(raised, KafkaException) else reason
        return _copy(cause.args[0])
    except SystemError:
        pass
    return KafkaError(KafkaError._FAIL, str(raised))


def failure(client: Producer) -> KafkaError | None:
    """The reason why the open transaction can no longer be committed; None if it can be. Changes nothing.

    Delivery callbacks do not show the reason: the records after a refused one are purged or time out, like the records
    in a fenced producer's queue. `produce` then raises ``_STATE``.
    """
    try:
        client.begin_transaction()  # not allowed inside a transaction; a failed one answers with its first error
    except KafkaException as e:
        error = e.args[0]
        return _copy(error) if error.txn_requires_abort() or error.fatal() else None
    except SystemError as e:
        return true_error(e, client)
    return None


def _copy(error: KafkaError) -> KafkaError:
    """The error without a reference to the client's own one."""
    return KafkaError(error.code(), error.str(), error.fatal(), error.retriable(), error.txn_requires_abort())
