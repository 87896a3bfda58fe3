"""The topics of a target that is no Kafka cluster: each has a description of the target's own, as an index's mapping.
It says for how many partitions the topic was made. The ledger's two topics lie in one place.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from kafka_replication.ledger.entries import Ids
from kafka_replication.model.errors import Refused
from kafka_replication.model.keys import LEDGER_PARTITIONS, PartitionKey
from kafka_replication.planning.snapshot import PartitionOffsets, Topic, TopicDefaults
from kafka_replication.targets.journal import JournalLedger, Writers
from kafka_replication.targets.listed import LEDGER, ListedCatalogue

# What Kafka calls so: a write is acknowledged by all copies in sync, and only one of these becomes the primary.
SAFE: Final = {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}


class DescribedTopics(Protocol):
    """Asks about topics, also while copying."""

    def id(self, name: str) -> str | None:
        """None if there is no such topic, or if it has no id."""

    def made_for(self, name: str) -> int:
        """The number of partitions for which a topic was made that is none of the ledger's; 0 if there is none."""

    def check_ids(self, key: PartitionKey, ids: Ids) -> None:
        """Raise Refused unless the topic is still the one of the plan."""
        found = self.id(key.target_topic)
        if found != ids.target_topic:
            what = "was deleted" if found is None else f"was created again: its id is {found}, not {ids.target_topic}"
            raise Refused(f"{key.target_topic} on the target {what}", "plan again")

    def partitions(self, name: str) -> int:
        """The number of partitions of a topic; 0 if there is none."""
        return LEDGER_PARTITIONS if name in LEDGER else self.made_for(name)

    def check_place(self, topic: str, partition: int) -> None:
        """Raise Refused unless the topic has this partition."""
        if topic not in LEDGER and partition >= self.partitions(topic):
            raise Refused(f"there is no {topic}-{partition} on the target", "run again, which creates it")


class DescribedCatalogue(ListedCatalogue, Protocol):
    """The part of a `Catalogue` that is the same wherever topics have descriptions."""

    copies: int  # of a new topic, if nobody says how many
    _ledger: JournalLedger

    @property
    def defaults(self) -> TopicDefaults:
        return TopicDefaults(self.copies, SAFE)

    @property
    def asked(self) -> DescribedTopics: ...

    def topic(self, name: str, writers: Writers) -> Topic | None:
        """A topic that is none of the ledger's; None if there is none. ``writers`` are those of the replication."""

    def ledger_place(self) -> tuple[str, int] | None:
        """The id of the place of the ledger, and how many copies it has; None if there is no ledger."""

    def _ledger_topics(self) -> dict[str, Topic]:
        if (place := self.ledger_place()) is None:
            return {}
        id_, copies = place
        offsets = dict.fromkeys(range(LEDGER_PARTITIONS), PartitionOffsets(0, 0, 0))
        return {
            name: Topic(name=name, topic_id=f"{id_}/{name}", partitions=offsets, replication_factor=copies, config=SAFE)
            for name in LEDGER
        }

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        wanted = set(names)
        others = sorted(wanted.difference(LEDGER))
        ledger = self._ledger_topics() if wanted.intersection(LEDGER) else {}
        found = {name: topic for name, topic in ledger.items() if name in wanted}
        writers = self._ledger.writers() if others else {}
        for name in others:
            if (topic := self.topic(name, writers)) is not None:
                found[name] = topic
        return found

    def partitions(self, names: Iterable[str]) -> dict[str, frozenset[int]]:
        there = {name: self.asked.partitions(name) for name in names}
        return {name: frozenset(range(count)) for name, count in there.items() if count}
