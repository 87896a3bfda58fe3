"""What must fit between source and target before anything is copied. Pure: looks at a snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from kafka_replication.config import Replication
from kafka_replication.model.errors import PreflightFailed
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.planning.snapshot import Snapshot, Topic


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong, where, and what to do. An ``error`` stops the run, a ``warning`` is shown."""

    severity: Literal["error", "warning"]
    where: str
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.severity}: {self.where}: {self.what}. Remedy: {self.remedy}"


def check(replication: Replication, snapshot: Snapshot, *, known: bool = False) -> list[Finding]:
    """Every finding, errors first. ``known``: the ledger knows partitions, so that the plan says which topics are
    gone.
    """
    found = list(_clusters(replication, snapshot, known))
    for name, source in sorted(snapshot.source.items()):
        found += _open_transactions(source)
        target = snapshot.target.get(replication.target_topic(name))
        if target is None:
            if not replication.target_topics.create:
                found.append(
                    Finding(
                        "error", name, "its target topic does not exist and target_topics.create is false", "create it"
                    )
                )
            continue
        found += _topic(replication, source, target)
    found += _collisions(replication, snapshot)
    return sorted(found, key=lambda finding: (finding.severity, finding.where))


def held_back(last_stable: int, high_watermark: int) -> str:
    """What an open transaction keeps from every ``read_committed`` reader, and so from a run."""
    return (
        f"a transaction is open: the last stable offset is {last_stable}, the high watermark {high_watermark}; "
        f"the {high_watermark - last_stable} offsets between them are withheld until it ends"
    )


def _open_transactions(topic: Topic) -> Iterator[Finding]:
    for number, offsets in sorted(topic.partitions.items()):
        if offsets.high_watermark > offsets.last_stable:
            at = TopicPartition(topic.name, number)
            yield Finding(
                "warning",
                str(at),
                held_back(offsets.last_stable, offsets.high_watermark),
                f"if it stays, find it: kafka-transactions.sh find-hanging --topic {topic.name} --partition {number}",
            )


def raise_errors(findings: list[Finding]) -> None:
    """Raise PreflightFailed naming every finding that stops the run."""
    errors = [finding for finding in findings if finding.severity == "error"]
    if errors:
        raise PreflightFailed(
            "; ".join(f"{each.where}: {each.what}" for each in errors),
            "; ".join(dict.fromkeys(each.remedy for each in errors)),
        )


def _clusters(replication: Replication, snapshot: Snapshot, known: bool) -> Iterator[Finding]:
    if not snapshot.source and not known:
        yield Finding(
            "error", replication.name, "no topic of the source is selected", "correct topics.include and topics.exclude"
        )
    if snapshot.source_cluster == snapshot.target_cluster:
        same = [name for name in snapshot.source if replication.target_topic(name) == name]
        if same:
            yield Finding(
                "error",
                replication.name,
                f"source and target are the same cluster ({snapshot.source_cluster})",
                "use another target connection, or topics.rename",
            )


def _collisions(replication: Replication, snapshot: Snapshot) -> Iterator[Finding]:
    """Two source topics may not feed one target topic; nor may the target topic be a source (it would feed itself)."""
    if snapshot.source_cluster != snapshot.target_cluster:
        return
    for name in snapshot.source:
        target = replication.target_topic(name)
        if target in snapshot.source:
            yield Finding(
                "error", name, f"its target topic {target} is itself selected as a source", "exclude it: topics.exclude"
            )


def _topic(replication: Replication, source: Topic, target: Topic) -> Iterator[Finding]:
    at = f"{source.name} -> {target.name}"
    if len(target.partitions) < len(source.partitions):
        yield Finding(
            "warning",
            at,
            f"the target has {len(target.partitions)} partitions, the source {len(source.partitions)}: others are"
            " refused",
            f"kafka-topics.sh --alter --topic {target.name} --partitions {len(source.partitions)}",
        )
    if target.config.get("message.timestamp.type", "CreateTime") != "CreateTime":
        yield Finding(
            "error", at, "the target replaces timestamps (message.timestamp.type=LogAppendTime)", "set it to CreateTime"
        )
    if "max.message.bytes" in target.config and _number(target, "max.message.bytes") < _number(
        source, "max.message.bytes"
    ):
        yield Finding(
            "warning",
            at,
            f"the target's max.message.bytes {target.config['max.message.bytes']} is below the source's "
            f"{source.config['max.message.bytes']}: a larger record is refused",
            f"raise max.message.bytes of {target.name}",
        )
    yield from _retention(at, source, target)
    yield from _safety(replication, at, target)


def _retention(at: str, source: Topic, target: Topic) -> Iterator[Finding]:
    policy = target.config.get("cleanup.policy", "delete")
    if "compact" in policy and _number(target, "min.compaction.lag.ms") < 3_600_000:
        yield Finding(
            "warning",
            at,
            "the target is compacted without a min.compaction.lag.ms of an hour: records may go before they are"
            " verified",
            f"set min.compaction.lag.ms on {target.name}",
        )
    keeps = _number(target, "retention.ms") if "retention.ms" in target.config else -1
    if "delete" in policy and 0 <= keeps < _number(source, "retention.ms", forever=2**63):
        yield Finding(
            "warning",
            at,
            f"the target keeps records for {keeps} ms, less than the source: "
            "old records may be deleted before they are verified",
            f"raise retention.ms of {target.name}",
        )


def _safety(replication: Replication, at: str, target: Topic) -> Iterator[Finding]:
    severity: Literal["error", "warning"] = "error" if replication.preflight.unsafe_target == "refuse" else "warning"
    remedy = "see preflight.unsafe_target; use 3 replicas, min.insync.replicas=2 and no unclean election"
    if target.replication_factor < 2:
        yield Finding(
            severity,
            at,
            f"the target has replication factor {target.replication_factor}: one lost disk loses the copy",
            remedy,
        )
    elif _number(target, "min.insync.replicas") < 2:
        yield Finding(severity, at, "the target acknowledges with one replica (min.insync.replicas=1)", remedy)
    if target.config.get("unclean.leader.election.enable") == "true":
        yield Finding(
            severity, at, "the target allows unclean leader election: acknowledged records can vanish", remedy
        )


def _number(topic: Topic, setting: str, forever: int | None = None) -> int:
    value = int(topic.config.get(setting, 0))
    return forever if forever is not None and value < 0 else value
