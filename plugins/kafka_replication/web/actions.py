"""The actions of a page. Each is one DAG run that Airflow starts for the person who asks, with the DAG's own form.

Addresses: of the pages, and of Airflow's own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import quote, urlencode

from kafka_replication.config import names
from kafka_replication.documents import StatusRow
from kafka_replication.overview.rows import Row
from kafka_replication.watermarks.failed import FailedRow

PLAN, AUDIT, HANDLE, REPAIR = "plan", "audit", "handle", "repair"  # the first tasks of the DAGs


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A field of the form. ``kind``: text, number, list (one a line or with commas), or point: an offset or a time."""

    name: str
    title: str
    kind: str = "text"
    value: str = ""
    required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """A DAG run with ``conf`` and the values of the fields. Its page opens at ``task`` (empty: at the run)."""

    name: str
    title: str
    text: str
    dag_id: str
    task: str = ""
    conf: Mapping[str, Any] = field(default_factory=dict)
    fields: tuple[Field, ...] = ()
    unpause: bool = False  # the DAG is switched off and has no schedule, so that it is switched on with the run

    def filled(self, values: Mapping[str, str]) -> Action:
        """The action with these values in its fields."""
        return replace(self, fields=tuple(replace(one, value=values.get(one.name, one.value)) for one in self.fields))

    def switched_off(self) -> Action:
        """The action on a DAG that is switched off. Only a person may switch a schedule on."""
        if self.dag_id.endswith(tuple(names.DAG_SUFFIXES)):
            return replace(self, unpause=True)
        title = "Switch the schedule on, too: while it is off, Airflow starts nothing"
        return replace(self, fields=(*self.fields, Field(name="unpause", title=title, kind="unpause")))


_TOPIC: Final = Field(name="topic", title="Topic", value="")
_PARTITION: Final = Field(name="partition", title="Partition", kind="number")
_OFFSETS: Final = (
    Field(name="from", title="From offset", kind="number"),
    Field(name="until", title="Until offset", kind="number"),
)
_REASON: Final = Field(name="reason", title="Why", required=True)


def actions(row: Row, allowed: Collection[str]) -> list[Action]:
    """The actions on one replication. ``allowed`` are the DAGs that this person may trigger."""
    return [action for action in _all(row) if action.dag_id in allowed]


def _all(row: Row) -> Iterator[Action]:
    name, facts = row.replication, row.facts
    if facts is None or not facts.by_interval:
        yield Action(name="run", title="Run now", text="Copies everything since the last run.", dag_id=name)
        yield Action(
            name="dry-run",
            title="Dry run",
            text="Shows what a run would do, and changes nothing.",
            dag_id=name,
            task=PLAN,
            conf={"dry_run": True},
        )
    point = "offset, or time with zone"
    yield Action(
        name="backfill",
        title="Backfill",
        text="Copies a range again that nothing on the target covers. Begin with a dry run.",
        dag_id=f"{name}{names.BACKFILL_SUFFIX}",
        task=PLAN,
        fields=(
            Field(name="topics", title="Topics", kind="list"),
            Field(name="partitions", title="Partitions, such as 0, 3"),
            Field(name="from", title=f"From ({point})", kind="point"),
            Field(name="until", title=f"Until ({point})", kind="point"),
            Field(name="dry_run", title="Dry run: only show the plan", kind="switch", value="on"),
        ),
    )
    yield Action(
        name="audit",
        title="Audit",
        text="Compares what was copied with the source again, and changes nothing.",
        dag_id=f"{name}{names.AUDIT_SUFFIX}",
        task=AUDIT,
        fields=(_TOPIC, _PARTITION, *_OFFSETS),
    )
    yield Action(
        name="approve-gap",
        title="Approve a gap",
        text="Gives up exactly these source offsets, which can no longer be read, so that copying goes on after them.",
        dag_id=f"{name}{names.REPAIR_SUFFIX}",
        task=REPAIR,
        conf={"action": "approve-gap"},
        fields=tuple(replace(one, required=True) for one in (_TOPIC, _PARTITION, *_OFFSETS, _REASON)),
    )
    yield Action(
        name="reset",
        title="Reset a topic",
        text="Starts a topic again whose source or target topic was re-created: everything is copied again.",
        dag_id=f"{name}{names.REPAIR_SUFFIX}",
        task=REPAIR,
        conf={"action": "reset"},
        fields=(
            replace(_TOPIC, required=True),
            Field(name="confirm", title="The topic's name again", required=True),
        ),
    )


def failed_records(row: Row, allowed: Collection[str]) -> list[Action]:
    """The actions on all records that wait for a decision; each row has the same for itself."""
    dag_id = f"{row.replication}{names.FAILED_SUFFIX}"
    if dag_id not in allowed:
        return []
    texts = {
        "retry": "Copies the records again, behind everything that is on the target.",
        "discard": "Gives the records up.",
    }
    return [
        Action(
            name=name,
            title=name.capitalize(),
            text=text,
            dag_id=dag_id,
            task=HANDLE,
            conf={"action": name},
            fields=(_REASON,),
        )
        for name, text in texts.items()
    ]


@dataclass(frozen=True, slots=True)
class Site:
    """``base`` is the path of these pages, ``airflow`` the path of Airflow; neither ends in a slash."""

    base: str
    airflow: str

    def replication(self, name: str) -> str:
        return f"{self.base}/replications/{quote(name, safe='')}"

    def partition(self, name: str, row: StatusRow) -> str:
        place = urlencode({"topic": row.topic, "partition": row.partition, "target": row.target_topic})
        return f"{self.replication(name)}/partition?{place}"

    def ranges(self, name: str, run_id: str) -> str:
        """The page of a run with its ranges."""
        return f"{self.replication(name)}/run?{urlencode({'run_id': run_id})}"

    def dag(self, dag_id: str) -> str:
        return f"{self.airflow}/dags/{quote(dag_id, safe='')}"

    def run(self, name: str, run_id: str) -> str | None:
        """Airflow's page of a run; None for one that a command started."""
        at = dag_run_of(name, run_id)
        return None if at is None else f"{self.dag(at[0])}/runs/{quote(at[1], safe='')}"

    def one_record(self, action: Action, row: FailedRow) -> Mapping[str, Any]:
        """The configuration of the action for this record alone."""
        at = row.key.source
        place = {"topic": at.topic, "partition": at.partition, "from": row.offset, "until": row.offset + 1}
        return {**action.conf, **place}


def store_run_id(dag_id: str, dag_run_id: str) -> str:
    """The id under which the store has a DAG run; `orchestration.task_run` makes it."""
    return f"airflow-{dag_id}-{dag_run_id}"


def dag_run_of(name: str, run_id: str) -> tuple[str, str] | None:
    """The DAG and its run behind a run of the store; None for one that a command started."""
    for dag_id in (name, f"{name}{names.BACKFILL_SUFFIX}"):
        if run_id.startswith(prefix := store_run_id(dag_id, "")):
            return dag_id, run_id.removeprefix(prefix)
    return None


def replication_of(dag_id: str) -> str:
    """The replication whose DAG this is."""
    for suffix in names.DAG_SUFFIXES:
        if dag_id.endswith(suffix):
            return dag_id.removesuffix(suffix)
    return dag_id
