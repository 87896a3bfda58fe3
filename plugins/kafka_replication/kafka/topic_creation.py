"""The request that creates topics, in a form that brokers of every release take."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # re-exported silently

from kafka_replication.planning.topic_settings import AFTER, BEFORE, before_3_6
from kafka_replication.targets.port import ToCreate


def ask_to_create(
    admin: AdminClient, topics: Iterable[ToCreate], seconds: float, *, validate_only: bool = False
) -> dict[str, KafkaError | None]:
    """The brokers' error about each topic, None if it was created. ``validate_only`` creates nothing.

    A topic with limits of timestamps that brokers before Kafka 3.6 do not know is asked for again with theirs.
    """
    asked, errors = {topic.name: topic for topic in topics}, dict[str, KafkaError | None]()
    for form in (dict, before_3_6):
        new = [
            NewTopic(name, topic.partitions, topic.replication_factor or -1, config=form(topic.config))
            for name, topic in asked.items()
        ]
        futures = admin.create_topics(new, validate_only=validate_only, request_timeout=seconds) if new else {}
        for name, future in futures.items():
            try:
                future.result(seconds * 2)
                errors[name] = None
            except KafkaException as e:
                errors[name] = e.args[0]
        asked = {name: topic for name, topic in asked.items() if _is_unknown_limit(errors[name])}
    return errors


def _is_unknown_limit(error: KafkaError | None) -> bool:
    if error is None or error.code() != KafkaError.INVALID_CONFIG:
        return False
    return any(f"Unknown topic config name: {limit}" in error.str() for limit in (AFTER, BEFORE))
