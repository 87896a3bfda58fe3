"""The JSON of a plan that is stored with its run. Every format that was ever stored stays readable.

A newer version continues a run that an older version planned: after an upgrade, a cleared task works on the stored
ranges. A field that readers may ignore can be added to a format. A field that they must understand needs a new format.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, NotRequired

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from kafka_replication.ledger.entries import Ids
from kafka_replication.ledger.fields import JsonCoverage, JsonRange, Number
from kafka_replication.model.engine_choice import EngineChoice
from kafka_replication.model.errors import PlanUnreadable
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import Coverage, TopicPartition
from kafka_replication.planning.plan import PartitionPlan, Plan, State
from kafka_replication.runtime.private_json import deferred

FORMAT = 1  # the format that is written
_ANEW = "trigger a new run, which makes a new plan and copies nothing twice"

# The texts of format 1. They never change, even if the texts of the states on screens do. A text may be added: an older
# version refuses a plan that has it by name.
_STATES_1: Mapping[str, State] = {
    "in sync": State.IN_SYNC,
    "behind": State.BEHIND,
    "pending verification": State.PENDING,
    "not opened yet": State.OPENING,
    "source topic re-created": State.SOURCE_RECREATED,
    "target topic re-created": State.TARGET_RECREATED,
    "retention overran": State.OVERRUN,
    "source truncated": State.TRUNCATED,
    "ledger lost": State.LEDGER_LOST,
    "appeared late, with a gap": State.LATE_GAP,
    "fewer target partitions": State.FEWER_PARTITIONS,
    "target topic missing": State.TARGET_MISSING,
    "partitioning changed": State.REPARTITIONED,
    "topic vanished": State.VANISHED,
    "could not be opened": State.NOT_OPENED,
    "does not answer": State.UNREADABLE,
    "topic cannot be used": State.UNFIT,
    "source topic deleted": State.DELETED,
    "removed from the target": State.REMOVED,
    "in sync, partly removed": State.PARTLY_REMOVED,
    "target truncated": State.TARGET_TRUNCATED,
    "foreign records": State.FOREIGN,
    "ledger contradicts itself": State.CONTRADICTED,
}
_TEXTS_1 = {state: text for text, state in _STATES_1.items()}


def _state_1(text: Any) -> State:
    if not isinstance(text, str) or text not in _STATES_1:
        raise ValueError(f"not a state of a partition: {text!r}")
    return _STATES_1[text]


class _Stored(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)


class JsonSource(_Stored):
    topic: str
    partition: Number


class JsonKey(_Stored):
    replication: str
    source: JsonSource
    target_topic: str


class Partition1(_Stored):
    key: JsonKey
    state: Annotated[State, BeforeValidator(_state_1)]
    ids: Ids
    generation: Number
    start: Number
    position: Number
    source_end: Number
    watermark: Number | None
    to_copy: JsonRange | None = Field(alias="copy")
    verify: JsonCoverage
    leader_epoch: int | None
    removed: JsonCoverage = Coverage()
    missed: JsonCoverage = Coverage()
    what: str
    remedy: str
    engine: str | None = None  # missing in an older plan
    engine_why: str = ""

    def value(self) -> PartitionPlan:
        source = TopicPartition(self.key.source.topic, self.key.source.partition)
        return PartitionPlan(
            key=PartitionKey(self.key.replication, source, self.key.target_topic),
            state=self.state,
            ids=self.ids,
            generation=self.generation,
            start=self.start,
            position=self.position,
            source_end=self.source_end,
            watermark=self.watermark,
            copy=self.to_copy,
            verify=self.verify,
            leader_epoch=self.leader_epoch,
            removed=self.removed,
            missed=self.missed,
            what=self.what,
            remedy=self.remedy,
            engine=None if self.engine is None else EngineChoice(self.engine, self.engine_why),
        )


class Plan1(_Stored):
    """The format of version 0.1.0."""

    replication: str
    partitions: list[Partition1]
    receipts_from: dict[str, Number] = {}  # missing in an older plan: all receipts are read
    notes: list[str] = []  # missing in an older plan
    changes: list[str] = []  # missing in an older plan
    settings: dict[str, str] = {}  # missing in an older plan

    def value(self) -> Plan:
        offsets = {int(partition): offset for partition, offset in self.receipts_from.items()}
        partitions = tuple(partition.value() for partition in self.partitions)
        return Plan(
            self.replication,
            partitions,
            receipts_from=offsets,
            left_to_others=tuple(self.notes),
            changes=tuple(self.changes),
            settings=self.settings,
        )


class IdsRow(TypedDict):
    """The ids of the source cluster and of both topics; empty for a topic that does not exist yet."""

    source_cluster: str
    source_topic: str
    target_topic: str


class SourceRow(TypedDict):
    """A source partition."""

    topic: str
    partition: int


class KeyRow(TypedDict):
    """The identity of one copied partition."""

    replication: str
    source: SourceRow
    target_topic: str


class PartitionPlanRow(TypedDict):
    """The plan of one partition: ``copy`` is the range to copy, ``verify`` what is to be read back.

    ``state`` is a text of the plan's format; ``what`` and ``remedy`` are empty if nothing is refused. Copies that are
    ``removed`` from the target, and those of them that are ``missed``, are left out if there are none. ``engine``
    begins with the copy, for the reason ``engine_why``; both are left out if nothing is copied.
    """

    key: KeyRow
    state: str
    ids: IdsRow
    generation: int
    start: int
    position: int
    source_end: int
    watermark: int | None
    copy: list[int] | None
    verify: list[list[int]]
    leader_epoch: int | None
    removed: NotRequired[list[list[int]]]
    missed: NotRequired[list[list[int]]]
    what: str
    remedy: str
    engine: NotRequired[str]
    engine_why: NotRequired[str]


class StoredPlan(TypedDict):
    """A plan as the store has it. ``receipts_from`` has an offset of the receipts topic for each ledger partition,
    ``settings`` what the plan depends on in the file.
    """

    format: int
    replication: str
    partitions: list[PartitionPlanRow]
    receipts_from: NotRequired[dict[str, int]]
    notes: NotRequired[list[str]]
    changes: NotRequired[list[str]]
    settings: NotRequired[dict[str, str]]


FORMATS: Mapping[int, TypeAdapter[Plan1]] = {1: deferred(Plan1)}


def encode(plan: Plan) -> str:
    return json.dumps(as_json(plan))


def as_json(plan: Plan) -> StoredPlan:
    """The document that is stored, and that ``plan --json`` shows."""
    document: StoredPlan = {
        "format": FORMAT,
        "replication": plan.replication,
        "partitions": [_partition(planned) for planned in plan.partitions],
    }
    if plan.receipts_from:
        document["receipts_from"] = {str(partition): offset for partition, offset in plan.receipts_from.items()}
    if plan.left_to_others:
        document["notes"] = list(plan.left_to_others)
    if plan.changes:
        document["changes"] = list(plan.changes)
    if plan.settings:
        document["settings"] = dict(plan.settings)
    return document


def _partition(planned: PartitionPlan) -> PartitionPlanRow:
    key, ids = planned.key, planned.ids
    document: PartitionPlanRow = {
        "key": {
            "replication": key.replication,
            "source": {"topic": key.source.topic, "partition": key.source.partition},
            "target_topic": key.target_topic,
        },
        "state": _TEXTS_1[planned.state],
        "ids": {
            "source_cluster": ids.source_cluster,
            "source_topic": ids.source_topic,
            "target_topic": ids.target_topic,
        },
        "generation": planned.generation,
        "start": planned.start,
        "position": planned.position,
        "source_end": planned.source_end,
        "watermark": planned.watermark,
        "copy": [planned.copy.from_, planned.copy.until] if planned.copy else None,
        "verify": planned.verify.encode(),
        "leader_epoch": planned.leader_epoch,
        "removed": planned.removed.encode(),
        "missed": planned.missed.encode(),
        "what": planned.what,
        "remedy": planned.remedy,
    }
    if not planned.removed:
        del document["removed"]
    if not planned.missed:
        del document["missed"]
    if planned.engine is not None:
        document["engine"], document["engine_why"] = planned.engine
    return document


def decode(text: str, run_id: str) -> Plan:
    """Decode the plan of this run. Raises PlanUnreadable if this version cannot read it."""
    format_ = _format(text, run_id)
    if format_ not in FORMATS:
        raise PlanUnreadable(
            f"the plan of run {run_id} has format {format_}, this version reads up to {max(FORMATS)}",
            f"upgrade this installation: a newer version planned the run; or {_ANEW}",
        )
    try:
        return FORMATS[format_].validate_json(text).value()
    except ValueError as e:
        raise _unreadable(run_id, f"format {format_}", e) from e


def _format(text: str, run_id: str) -> int:
    try:
        format_ = json.loads(text)["format"]
        if type(format_) is not int:
            raise TypeError(f"its format is {format_!r}")
    except (ValueError, KeyError, TypeError, RecursionError) as e:
        raise _unreadable(run_id, "no format that can be read", e) from e
    return format_


def _unreadable(run_id: str, format_: str, error: Exception) -> PlanUnreadable:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_context=False)[0]
        error = ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}")
    return PlanUnreadable(f"the plan of run {run_id} cannot be read ({format_}; {error})", _ANEW)
