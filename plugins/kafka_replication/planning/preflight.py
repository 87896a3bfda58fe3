"""Checks that source and target fit together, before anything is copied. Pure: it uses a snapshot only.

Finds two replications that feed each other: the ledger on the source cluster has the other one. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from kafka_replication.config import Replication
from kafka_replication.config.model import RENAME
from kafka_replication.config.names import PROVENANCE
from kafka_replication.ledger.entries import Position
from kafka_replication.model.offsets import PartitionKey, TopicPartition
from kafka_replication.model.rights import Side
from kafka_replication.model.trouble import Trouble, in_order, joined
from kafka_replication.planning import followed_settings, rights, schemas, topic_settings
from kafka_replication.planning.followed_settings import differences
from kafka_replication.planning.plan import State
from kafka_replication.planning.snapshot import Snapshot, Topic
from kafka_replication.planning.topic_settings import (
    AFTER,
    BEFORE,
    ROOM,
    after_limit,
    before_limit,
    check_ledger,
    check_quarantine,
    created_config,
)


def _source_only(replication: Replication, snapshot: Snapshot) -> Iterator[Trouble]:
    """The findings about the source's topics, while the target does not answer."""
    for name, topic in snapshot.source.items():
        problem = replication.target_problem(name)
        findings = [Trouble("error", name, problem, RENAME)] if problem else []
        findings += rights.missing_for_side(snapshot, "source", name) or _unusable(topic, None)
        findings += [*_timeless(topic), *_open_transactions(topic), *_unanswered(topic, None)]
        yield from (replace(finding, topic=name) for finding in findings)


def _target_only(replication: Replication, snapshot: Snapshot) -> Iterator[Trouble]:  # noqa: ARG001 - see `Check`
    """The findings about the target's topics, while the source does not answer."""
    for topic in snapshot.target.values():
        unusable = rights.missing_for_side(snapshot, "target", topic.name) or list(_unusable(None, topic))
        yield from unusable or _target_settings(topic.name, topic)
        yield from _unanswered(None, topic)


def _topics(replication: Replication, snapshot: Snapshot) -> Iterator[Trouble]:
    """The findings about each source topic and its target."""
    twins = _twins(replication, snapshot)
    for name, source in snapshot.source.items():
        target = snapshot.target.get(replication.target_name(name))
        findings = [
            *_fit(replication, snapshot, name, twins),
            *_timeless(source),
            *_open_transactions(source),
            *_unanswered(source, target),
        ]
        findings += rights.denied_partitions(replication, snapshot, name)
        findings += rights.to_follow(replication, snapshot, name)
        yield from (replace(finding, topic=name) for finding in findings)


def unfit(replication: Replication, snapshot: Snapshot) -> dict[str, Trouble]:
    """The source topics that are refused as a whole, with all their errors."""
    twins = _twins(replication, snapshot)
    problems = {name: joined(_fit(replication, snapshot, name, twins), kind=State.UNFIT) for name in snapshot.source}
    return {name: problem for name, problem in problems.items() if problem}


def _fit(replication: Replication, snapshot: Snapshot, name: str, twins: Mapping[str, str]) -> list[Trouble]:
    """The findings that refuse the copy of the topic to its target, and warnings about losses there."""
    source, target = snapshot.source[name], snapshot.target.get(replication.target_name(name))
    if problem := replication.target_problem(source.name):
        return [Trouble("error", source.name, problem, RENAME)]
    if unusable := rights.missing_for_topic(replication, snapshot, name) or list(_unusable(source, target)):
        return unusable
    findings = list(schemas.fit(replication, source, target))
    findings += _missing(replication, snapshot, source) if target is None else _topic(replication, source, target)
    if twin := twins.get(name):
        what = f"{twin} would be written to {replication.target_name(name)}, too"
        return [*findings, Trouble("error", name, what, RENAME)]
    return [*findings, *_collision(replication, snapshot, name)]


def _unusable(source: Topic | None, target: Topic | None) -> Iterator[Trouble]:
    """Findings about a topic that cannot be described or created."""
    for side, topic in (("source", source), ("target", target)):
        if topic is not None and topic.problem is not None:
            yield Trouble("error", f"{topic.name} on the {side}", topic.problem.what, topic.problem.remedy)


def _unanswered(source: Topic | None, target: Topic | None) -> Iterator[Trouble]:
    for side, topic in (("source", source), ("target", target)):
        for number, answer in sorted(topic.partitions.items()) if topic and topic.problem is None else ():
            if isinstance(answer, Trouble):
                partition = TopicPartition(topic.name if topic else "", number)
                yield replace(answer, where=f"{partition} on the {side}", partition=number)


def _missing(replication: Replication, snapshot: Snapshot, source: Topic) -> Iterator[Trouble]:
    """Findings about a target topic that does not exist. They are about the settings that it would be created with."""
    if not replication.target_topics.create:
        yield Trouble(
            "error", source.name, "its target topic does not exist and target_topics.create is false", "create it"
        )
        return
    settings = replication.target_topics.of(source.name)
    place, config = f"{source.name} -> {replication.target_name(source.name)}", settings.config
    created = created_config(source.config, settings)
    yield from topic_settings.check_created(replication, place, "the target", created, snapshot.defaults)
    yield from _limits(place, source.config, created, "in target_topics.config")
    limited = "delete" in source.config.get("cleanup.policy", "delete")
    if limited and _number(source, "retention.bytes", default=-1) >= 0 and "retention.bytes" not in config:
        yield Trouble(
            "warning",
            place,
            f"the source keeps at most {source.config['retention.bytes']} bytes a partition; the target to be created"
            " gets no such limit, because the same records may need more bytes there",
            "set target_topics.config with retention.bytes, well above the source's, if the target needs a limit",
        )


def withheld_by_open_transaction(last_stable: int, high_watermark: int, hidden_by: str) -> str:
    """The text about offsets that an open transaction hides from ``read_committed`` readers, and so from a run.
    ``hidden_by`` names it, if that is known.
    """
    return (
        f"a transaction is open: the last stable offset is {last_stable}, the high watermark {high_watermark}; "
        f"the {high_watermark - last_stable} offsets between them are withheld until it ends{hidden_by}"
    )


_FORMAT = "message.format.version"  # brokers of Kafka 3 ignore it, those of Kafka 4 do not know it


def _format(topic: Topic) -> tuple[int, int]:
    """The release whose message format brokers before Kafka 3 store; a late one if they do not say."""
    version = re.match(r"(\d+)\.(\d+)", topic.config.get(_FORMAT, ""))
    return (int(version[1]), int(version[2])) if version else (2, 8)


def _timeless(topic: Topic) -> Iterator[Trouble]:
    if _format(topic) < (0, 10):
        yield Trouble(
            "warning",
            topic.name,
            f"its {_FORMAT} is {topic.config[_FORMAT]}: records in message format 0 have no timestamp, and are refused",
            "choose failures.policy quarantine or skip; a later format concerns new records only",
        )


def _open_transactions(topic: Topic) -> Iterator[Trouble]:
    for number, offsets in sorted(topic.readable.items()):
        if offsets.high_watermark > offsets.last_stable:
            partition = TopicPartition(topic.name, number)
            yield Trouble(
                "warning",
                str(partition),
                withheld_by_open_transaction(offsets.last_stable, offsets.high_watermark, offsets.hidden_by),
                f"if it stays, find it: kafka-transactions.sh find-hanging --topic {topic.name} --partition {number}",
            )


def _nothing_selected(replication: Replication, snapshot: Snapshot) -> Iterator[Trouble]:
    if not snapshot.source and not snapshot.known:
        yield Trouble(
            "error", replication.name, "no topic of the source is selected", "correct topics.include and topics.exclude"
        )


def _clusters(replication: Replication, snapshot: Snapshot) -> Iterator[Trouble]:
    if snapshot.source_cluster == snapshot.target_cluster:
        same = [name for name in snapshot.source if replication.target_name(name) == name]
        if same:
            yield Trouble(
                "error",
                replication.name,
                f"source and target are the same cluster ({snapshot.source_cluster})",
                "use another target connection, or topics.rename",
            )
    excluded = replication.topics.exclude_from
    if excluded and snapshot.target_cluster and snapshot.target_cluster not in excluded:
        yield Trouble(
            "warning",
            replication.name,
            f"topics.exclude_from has {', '.join(excluded)}, which is not the target's cluster id"
            f" {snapshot.target_cluster}: records that came from the target go back to it",
            "add the id, unless nothing is replicated from there",
        )


def _twins(replication: Replication, snapshot: Snapshot) -> dict[str, str]:
    """Another source topic that gets the same target, by source topic. With a template none does."""
    first, twins = dict[str, str](), dict[str, str]()
    for name in snapshot.source if isinstance(replication.topics.rename, dict) else ():
        other = first.setdefault(replication.target_name(name), name)
        if other != name:
            twins |= {name: other, other: name}
    return twins


def _collision(replication: Replication, snapshot: Snapshot, name: str) -> Iterator[Trouble]:
    """Findings about a target topic that is also selected as a source: its records would be copied again.

    If provenance leaves the copies out, only a copy of a copy may not be selected: there would be ever more topics.
    """
    target = replication.target_name(name)
    if PROVENANCE in replication.transform and snapshot.source_cluster in replication.topics.exclude_from:
        target = replication.target_name(target)
    if snapshot.source_cluster == snapshot.target_cluster and replication.selects(target):
        yield Trouble(
            "error", name, f"its target topic {target} is itself selected as a source", "exclude it: topics.exclude"
        )


def _topic(replication: Replication, source: Topic, target: Topic) -> Iterator[Trouble]:
    place = f"{source.name} -> {target.name}"
    if replication.placing.keeps and len(target.partitions) < len(source.partitions):
        follows = replication.adds_partitions
        yield Trouble(
            "warning",
            place,
            f"the target has {len(target.partitions)} partitions, the source {len(source.partitions)}: "
            + ("a run adds the others" if follows else "the partitions without a target are refused"),
            f"kafka-topics.sh --alter --topic {target.name} --partitions {len(source.partitions)}",
        )
    yield from _target_settings(place, target)
    settings = replication.target_topics
    yield from followed_settings.findings(place, differences(replication, source, target), settings)
    yield from _limits(place, source.config, target.config, f"of {target.name}")
    yield from _retention(place, source, target)


def _target_settings(place: str, target: Topic) -> Iterator[Trouble]:
    """Findings about the settings of an existing target, whatever its source is."""
    if target.config.get("message.timestamp.type", "CreateTime") != "CreateTime":
        yield Trouble(
            "error",
            place,
            "the target replaces timestamps (message.timestamp.type=LogAppendTime)",
            "set it to CreateTime",
        )
    if _format(target) < (0, 11):
        yield Trouble(
            "warning",
            place,
            f"the target's {_FORMAT} is {target.config[_FORMAT]}: brokers before Kafka 3 take neither transactions nor"
            " headers there",
            f"remove {_FORMAT} of {target.name}",
        )
    yield from topic_settings.check_safety(place, "the target", target.replication_factor, target.config)


def _limits(place: str, source: Mapping[str, str], target: Mapping[str, str], where: str) -> Iterator[Trouble]:
    """Findings about limits of the target that refuse source records. ``where`` is the place of the settings."""
    size = "max.message.bytes"
    if size in target and int(target[size]) < int(source.get(size, 0)):
        yield Trouble(
            "warning",
            place,
            f"the target's {size} {target[size]} is below the source's {source[size]}: a larger record is refused",
            f"raise {size} {where}",
        )
    if int(after_limit(target)) < int(after_limit(source)):
        yield Trouble(
            "warning",
            place,
            f"the target's {AFTER} {after_limit(target)} is below the source's {after_limit(source)}: a record with a"
            " later timestamp is refused",
            f"raise {AFTER} {where}",
        )
    if int(before_limit(target)) < int(before_limit({})):
        yield Trouble(
            "warning",
            place,
            f"the target's {BEFORE} is {before_limit(target)}: an older record is refused when it is copied",
            f"raise {BEFORE} {where}",
        )


def _retention(place: str, source: Topic, target: Topic) -> Iterator[Trouble]:
    policy = target.config.get("cleanup.policy", "delete")
    if "compact" in policy and _number(target, "min.compaction.lag.ms") < 3_600_000:
        yield Trouble(
            "warning",
            place,
            "the target is compacted and its min.compaction.lag.ms is below one hour: records may be removed before"
            " they are verified",
            f"set min.compaction.lag.ms on {target.name}",
        )
    keeps = _number(target, "retention.ms") if "retention.ms" in target.config else -1
    if "delete" in policy and 0 <= keeps < _number(source, "retention.ms", forever=2**63):
        yield Trouble(
            "warning",
            place,
            f"the target keeps records for {keeps} ms, less than the source: "
            "old records may be deleted before they are verified",
            f"raise retention.ms of {target.name}",
        )
    limit = _number(target, "retention.bytes", default=-1)
    if "delete" in policy and 0 <= limit < ROOM * _number(source, "retention.bytes", forever=2**63, default=-1):
        yield Trouble(
            "warning",
            place,
            f"the target keeps at most {limit} bytes a partition, the source"
            f" {source.config.get('retention.bytes', '-1')}: the target compresses records again and may need {ROOM}"
            " times the space, so records may be deleted before they are verified",
            f"raise retention.bytes of {target.name}",
        )


def _number(topic: Topic, setting: str, forever: int | None = None, default: int = 0) -> int:
    value = int(topic.config.get(setting, default))
    return forever if forever is not None and value < 0 else value


def loops(
    replication: Replication, target_cluster: str, on_source: Mapping[PartitionKey, Position]
) -> Iterator[Trouble]:
    """A warning for each source topic that another replication fills from the same topic to which this one copies.

    Its records circulate for ever unless each direction leaves out the records that came from its target. ``on_source``
    are the positions of replications that write to the source cluster.
    """
    marked, excluded = PROVENANCE in replication.transform, target_cluster in replication.topics.exclude_from
    if marked and excluded:
        return
    missing = ["transform: provenance"] * (not marked)
    missing += [f"topics.exclude_from: [{target_cluster}]"] * (not excluded)
    back = {
        (key.target_topic, key.source.topic): key.replication
        for key, position in on_source.items()
        if position.ids.source_cluster == target_cluster and not position.sealed
    }
    for (here, there), other in sorted(back.items()):
        if replication.selects(here) and replication.target_name(here) == there:
            yield Trouble(
                "warning",
                f"{here} -> {there}",
                f"the replication {other} copies {there} back to {here}: records go round for ever",
                f"set {' and '.join(missing)}; in the other direction, too, with the id of this source",
                topic=here,
            )


Check = Callable[[Replication, Snapshot], Iterable[Trouble]]
_OF_TARGET: Final = (check_ledger, check_quarantine, rights.missing_for_all, lambda _, snapshot: snapshot.refused)
CHECKS: Final[tuple[Check, ...]] = (_nothing_selected, _clusters, _topics, *_OF_TARGET)
# While the other side does not answer. The snapshot has this side only.
ONE_SIDE: Final[Mapping[Side, tuple[Check, ...]]] = {
    "source": (_nothing_selected, _source_only, rights.missing_for_all),
    "target": (_target_only, *_OF_TARGET),
}


def check(replication: Replication, snapshot: Snapshot, checks: Iterable[Check] = CHECKS) -> list[Trouble]:
    """All findings of these checks, errors first."""
    return in_order(finding for check in checks for finding in check(replication, snapshot))
