"""Ids of topics with many partitions. A connection of our own asks for them without the partitions (KIP-966).

The admin client describes every partition of a topic: 10 ms of processor time for 1,000 of them, for each question.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, TopicDescription  # type: ignore[attr-defined]  # re-exported silently

from kafka_replication.kafka.callbacks import ReportingAdmin
from kafka_replication.model.errors import BadInput, ReplicationError

if TYPE_CHECKING:
    from kafka_replication.wire.connection import Connection


log = logging.getLogger(__name__)
MANY = 100  # partitions; with fewer the admin client is cheaper than one more connection
SECONDS = 2.0  # for one answer
TRIES = 2  # connections in a row that gave no answer, after which none is made any more


class BriefIds:
    """The ids that one cluster tells one process. For one thread at a time; who asks has another way for the rest.

    A broker that does not know this request closes the connection.
    """

    def __init__(self) -> None:
        self._large = set[str]()
        self._connection: Connection | None = None
        self._failed = 0

    def learn(self, described: Iterable[TopicDescription]) -> None:
        """Remember which topics have many partitions."""
        self._large.update(topic.name for topic in described if len(topic.partitions) >= MANY)

    def ids(self, admin: AdminClient, names: Collection[str]) -> Mapping[str, str]:
        """The ids of those of these topics that are known to be large and exist, if the cluster tells them so."""
        large = self._large.intersection(names)
        if not large or self._failed >= TRIES or not isinstance(admin, ReportingAdmin):
            return {}
        from kafka_replication.wire.tls import Unsupported  # only who asks about a large topic loads it

        try:
            from kafka_replication.wire import metadata

            if self._connection is None:
                self._connection = _connect(admin, min(large))
                weakref.finalize(self, self._connection.close)
            found = metadata.topic_ids(self._connection, large)
        except (Unsupported, BadInput, ImportError) as why:
            self._failed = TRIES
            log.debug("topics are asked for with all their partitions: %s", why)
            return {}
        except (ReplicationError, KafkaException, OSError) as error:
            self._failed += 1
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            log.debug("no answer about the ids of topics: %s", error)
            return {}
        self._failed = 0
        return found


def _connect(admin: ReportingAdmin, topic: str) -> Connection:
    """To any broker: each knows the ids of all topics."""
    from kafka_replication.kafka.login import security_of
    from kafka_replication.wire.connection import Connection

    security = security_of(admin.reported.settings)
    broker = next(iter(admin.list_topics(topic, timeout=SECONDS).brokers.values()))
    return Connection(str(broker.host), int(broker.port), security, SECONDS)
