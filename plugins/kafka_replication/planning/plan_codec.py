"""The JSON of a plan that is stored with its run. Every format that was ever stored stays readable.

A newer version continues a run that an older version planned: after an upgrade, a cleared task works on the stored
ranges. A field that readers may ignore can be added to a format. A field that they must understand needs a new format.
"""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any, Final

from kafka_replication.documents import adapter
from kafka_replication.documents import as_json as json_of
from kafka_replication.ledger.codec import reason
from kafka_replication.model.errors import PlanUnreadable
from kafka_replication.planning.plan import PartitionPlan, Plan

FORMATS: Final = (1,)  # a further one is read by a class of its own
_ANEW = "trigger a new run, which makes a new plan and copies nothing twice"
_REQUIRED = {field.name for field in fields(PartitionPlan)} - PartitionPlan.OPTIONAL


def encode(plan: Plan) -> str:
    return json.dumps(as_json(plan))


def as_json(plan: Plan) -> dict[str, Any]:
    """The document that is stored, and that ``plan --json`` shows."""
    document = {"format": plan.format, **_short(json_of(plan), plan.OPTIONAL)}
    return document | {"partitions": [_short(row, PartitionPlan.OPTIONAL) for row in document["partitions"]]}


def _short(document: dict[str, Any], optional: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if value or name not in optional}


def decode(text: str, run_id: str) -> Plan:
    """Decode the plan of this run. Raises PlanUnreadable if this version cannot read it."""
    stored = _stored(text, run_id)
    format_ = stored["format"]
    if format_ not in FORMATS:
        raise PlanUnreadable(
            f"the plan of run {run_id} has format {format_}, this version reads up to {max(FORMATS)}",
            f"upgrade this installation: a newer version planned the run; or {_ANEW}",
        )
    try:
        plan = adapter(Plan).validate_json(text)
        for row in stored["partitions"]:
            if missing := _REQUIRED - row.keys():
                raise ValueError(f"partitions.{min(missing)}: it is missing")
        return plan
    except ValueError as e:
        raise _unreadable(run_id, f"format {format_}", e) from e


def _stored(text: str, run_id: str) -> dict[str, Any]:
    try:
        stored: dict[str, Any] = json.loads(text)
        if type(stored["format"]) is not int:
            raise TypeError(f"its format is {stored['format']!r}")
    except (ValueError, KeyError, TypeError, RecursionError) as e:
        raise _unreadable(run_id, "no format that can be read", e) from e
    return stored


def _unreadable(run_id: str, format_: str, error: Exception) -> PlanUnreadable:
    return PlanUnreadable(f"the plan of run {run_id} cannot be read ({format_}; {reason(error)})", _ANEW)
