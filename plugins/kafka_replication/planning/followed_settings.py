"""The settings of a source topic that its target follows, and where the target differs. Pure.

Compared are the settings that are set on one of the two topics itself, and those of the replication file. Defaults of
the brokers are not. The target should have what the source topic has, except where a created target gets another value
(`topic_settings.created_config`), and except what is `LEFT_ALONE`.

A record that the source has may still have to be copied when the source's limits get lower. So limits of the target are
only raised, and what lets the target remove records waits until they are copied and verified.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kafka_replication.config import Replication
from kafka_replication.config.model import TargetTopics
from kafka_replication.model.choices import KAFKA
from kafka_replication.model.trouble import Trouble
from kafka_replication.planning.snapshot import Snapshot, Topic
from kafka_replication.planning.topic_settings import AFTER, BEFORE, FOREVER, created_config

POLICY, RETENTION, SEGMENT = "cleanup.policy", "retention.ms", "segment.ms"
_AT_LEAST: Final = ("max.message.bytes", "min.compaction.lag.ms", AFTER)
_OF_ONE_CLUSTER: Final = "names brokers of one cluster"
_TIERED: Final = "tiered storage is a matter of each cluster"
_TIMES: Final = "an old record is written to the target later than to the source, so no age is too old there"
_OLD: Final = "brokers of Kafka 4 do not know it"
# The settings that are not followed, with the reason for each.
LEFT_ALONE: Final[Mapping[str, str]] = {
    "follower.replication.throttled.replicas": _OF_ONE_CLUSTER,
    "leader.replication.throttled.replicas": _OF_ONE_CLUSTER,
    "min.insync.replicas": "depends on the number of replicas, which is the target's own",
    "unclean.leader.election.enable": "would let the target lose records that it has acknowledged",
    "message.timestamp.type": "the target keeps the timestamps of the records, so it is CreateTime",
    "message.timestamp.difference.max.ms": _TIMES,
    BEFORE: _TIMES,
    "retention.bytes": "the same records may need more bytes on the target, and some would be deleted too early",
    SEGMENT: "a segment of the target has other records; `retention.ms` is longer by the source's `segment.ms`",
    "segment.jitter.ms": "delays `segment.ms`",
    "compression.type": "brokers with one of their own cannot store whole batches as they are at the source",
    "max.compaction.lag.ms": "compaction would remove records before they are verified (`min.compaction.lag.ms`)",
    "remote.storage.enable": _TIERED,
    "remote.log.copy.disable": _TIERED,
    "remote.log.delete.on.disable": _TIERED,
    "local.retention.ms": _TIERED,
    "local.retention.bytes": _TIERED,
    "message.format.version": _OLD,
    "message.downconversion.enable": _OLD,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A setting in which a target topic is not as it should be. ``wanted`` None is the default of the target's brokers.
    ``now`` None: the target's brokers do not know the setting. A run may change it if it ``can_follow``.
    """

    name: str
    now: str | None
    wanted: str | None
    can_follow: bool = True

    def __str__(self) -> str:
        if self.now is None:
            return f"{self.name}={self.wanted} is not known to the target's brokers"
        if not self.can_follow:
            return f"{self.name}={self.now} is set on the target alone"
        return f"{self.name} is {self.now}, and should be {self.wanted or 'the default of the brokers'}"

    def waits(self, *, to_copy: bool, to_verify: bool) -> bool:
        """True if the target could refuse, or remove too early, records of which some are ``to_copy``, or ``to_verify``
        only. A compacted topic refuses records without a key, which the source may have from before.
        """
        if self.name == RETENTION:
            return to_verify and self.wanted is not None and (_millis(self.wanted) < _millis(self.now or "0"))
        return self.name == POLICY and (to_copy or to_verify)


def differences(replication: Replication, source: Topic, target: Topic) -> list[Difference]:
    """The settings in which the target differs, by name. None with `follow: off`, none if the configuration of a topic
    is not known, and none for another kind of target than Kafka.
    """
    settings = replication.target_topics.of(source.name)
    if settings.follow == "off" or replication.target.type != KAFKA or not (source.config and target.config):
        return []
    created = created_config(source.config, settings)
    should = {name: source.config[name] for name in source.own - LEFT_ALONE.keys()} | created
    followed = (source.own | target.own) - LEFT_ALONE.keys() | {SEGMENT}
    compared = {name for name in followed if not settings.leaves_alone(name)} | settings.config.keys()
    found = (_difference(name, source, target, should.get(name), name in settings.config) for name in sorted(compared))
    return [difference for difference in found if difference is not None]


def differing(replication: Replication, snapshot: Snapshot) -> dict[str, tuple[str, ...]]:
    """The `differences` of all topics as text, by target topic; without those that have none."""
    pairs = [(source, snapshot.target.get(replication.target_name(name))) for name, source in snapshot.source.items()]
    found = {
        target.name: tuple(map(str, differences(replication, source, target)))
        for source, target in pairs
        if target is not None
    }
    return {name: texts for name, texts in found.items() if texts}


def _difference(name: str, source: Topic, target: Topic, wanted: str | None, stated: bool) -> Difference | None:
    """``stated``: the replication file has exactly this value."""
    now = target.config.get(name)
    if name == SEGMENT and wanted is None:  # only a run sets it for ever, while the source is compacted
        return Difference(name=name, now=now, wanted=None) if now == str(FOREVER) else None
    same_policy = _same(str(source.config.get(POLICY)), str(target.config.get(POLICY)))
    if name == SEGMENT and not stated and name not in target.own and same_policy:
        return None  # a topic that another tool created
    if wanted is None or now is None:
        return Difference(name=name, now=now, wanted=wanted, can_follow=False)
    if _same(now, wanted) or (not stated and _is_enough(name, now, wanted, source)):
        return None
    followed = stated or name in source.own or name in (*_AT_LEAST, SEGMENT)
    return Difference(name=name, now=now, wanted=wanted, can_follow=followed)


def _is_enough(name: str, now: str, wanted: str, source: Topic) -> bool:
    """True if the target may keep its own value."""
    if name in _AT_LEAST:
        return int(now) >= int(wanted)
    if name != RETENTION:
        return False
    return now == source.config.get(name) or (name not in source.own and _millis(now) >= _millis(wanted))


def _same(one: str, other: str) -> bool:
    """True if both are the same value, or list the same ones in another order."""
    return sorted(map(str.strip, one.split(","))) == sorted(map(str.strip, other.split(",")))


def _millis(retention: str) -> float:
    return float("inf") if int(retention) < 0 else int(retention)


def findings(place: str, found: Sequence[Difference], settings: TargetTopics) -> Iterator[Trouble]:
    """A warning about the settings that a run changes, or could change, and one about the others."""
    by_run = "a run sets them (target_topics.follow: apply)"
    by_hand = (
        "set target_topics.follow: apply, and a run sets them; or name in target_topics.follow_except what may differ"
    )
    alone = "remove it from the target topic; or name it in target_topics.config, or in target_topics.follow_except"
    to_set, others = [each for each in found if each.can_follow], [each for each in found if not each.can_follow]
    for chosen, remedy in ((to_set, by_run if settings.follow == "apply" else by_hand), (others, alone)):
        if chosen:
            what = f"settings of the target do not follow the source: {', '.join(map(str, chosen))}"
            yield Trouble("warning", place, what, remedy)
