"""Ends the transactions that dead sessions, and sessions that were given up, have left open: several at a time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import closing

from kafka_replication.kafka.write.producers.transactions import TransactionalProducer
from kafka_replication.model.errors import Busy, OutOfTime, ReplicationError
from kafka_replication.runtime import background

log = logging.getLogger(__name__)
Make = Callable[[str, str], TransactionalProducer]  # of a transactional id, and of what messages call it


def fence_each(ids: Mapping[str, str], make: Make, check: Callable[[], None] = lambda: None) -> None:
    """Fence the producers with these transactional ids, which ends their open transactions. ``ids`` says what messages
    call each. A producer that cannot be fenced is only logged: the next session of its id fences it again, or fails.

    ``check`` is called before each; what it raises ends all, and so do Busy and OutOfTime.
    """

    def work(one: tuple[str, str]) -> None:
        check()
        transactional_id, what = one
        try:
            with closing(make(transactional_id, what)) as producer:
                producer.fence()
        except (Busy, OutOfTime):
            raise
        except ReplicationError as error:
            log.warning("%s: its producer was not fenced, so its transaction may stay open: %s", what, error)

    background.at_once(ids.items(), work, "fence")
