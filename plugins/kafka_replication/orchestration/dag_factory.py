"""One DAG for each replication file, also for one with mistakes. Building a DAG reads only the file.

The DAG ``<name>.backfill`` of each replication. A person triggers it and names the range in its form.

The fields that the forms of several DAGs have. Airflow's page does not send a field that is empty, unless its type
allows null; an emptied field is null. The parser of the command line reads the values, so that a person sees its
messages. A pattern in the form would be answered with the schema instead. A field without a type is one line of text
that takes anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from airflow.sdk import DAG, CronDataIntervalTimetable, Param
from airflow.sdk.definitions.param import ParamsDict

from kafka_replication.config import Replication, names
from kafka_replication.model.errors import ConfigError
from kafka_replication.orchestration.operators import BackfillPlanOperator, IntervalPlanOperator, PlanOperator
from kafka_replication.orchestration.tasks import add_broken_tasks, add_tasks, default_args
from kafka_replication.planning.backfill_request import LATEST

# Fixed, because Airflow schedules from it. With catchup off Airflow runs none of the intervals between it and now.
START = datetime(2024, 1, 1, tzinfo=UTC)
Params = Mapping[str, Param]
POINT = "An offset, or an RFC 3339 time with its zone such as 2030-01-31T06:00:00Z"


def number_field(title: str, highest: int, description: str, lowest: int = 0) -> Param:
    """A whole number from ``lowest`` to ``highest``."""
    return Param(None, type=["null", "integer"], minimum=lowest, maximum=highest, title=title, description=description)


def text_field(title: str, description: str, *values: str) -> Param:
    """A text, for which the form offers ``values``."""
    some: dict[str, Any] = {"examples": list(values)} if values else {}
    return Param(None, type=["null", "string"], title=title, description=description, **some)


def topics_field(replication: Replication) -> Param:
    """Offers the topics to choose from if the file names each of them."""
    entries = replication.topics.include
    offered = [] if any(map(names.is_pattern, entries)) else sorted(entries)
    offers: dict[str, Any] = {"examples": offered} if offered else {}
    return Param(
        None,
        type=["null", "array"],
        items={"type": "string"},
        title="Topics",
        description=f"Only these source topics of the replication{'' if offered else ', one a line'}; empty means all.",
        **offers,
    )


def switch_field(title: str, description: str, default: bool = False) -> Param:
    return Param(default, type="boolean", title=title, description=description)


def dry_run_field(default: bool, task: str = "plan") -> Param:
    text = f"Only show what would be done, in the log and the XCom of the task {task}; change nothing."
    return switch_field("Dry run", text, default)


def build_dag(replication: Replication) -> DAG:
    """``plan >> replicate >> report``."""
    with _dag(replication) as dag:
        operator = IntervalPlanOperator if replication.progress == "interval" else PlanOperator
        add_tasks(replication, operator(task_id="plan", replication=replication))
    return dag


def build_broken_dag(rest: Replication, error: ConfigError) -> DAG:
    """The DAG of a file with mistakes, as far as it can be read: the same id, schedule and tasks. The tasks fail.

    So its schedule, history and alerts go on. If the DAG were missing, Airflow would neither run nor list it.
    """
    with _dag(rest) as dag:
        add_broken_tasks(rest, error)
    dag.params = ParamsDict()
    dag.doc_md = f"**The file of this replication has a mistake.**\n\n```\n{error.what}\n```\n\nRemedy: {error.remedy}"
    return dag


def _dag(replication: Replication) -> DAG:
    """The DAG without its tasks. With ``progress: interval`` it has one data interval a run since ``start_from``, so
    that Airflow's own backfill works.

    The timetable is needed because in Airflow 3 a plain cron string gives runs whose data interval is empty.
    """
    described = f"Replicates {replication.source.connection} to {replication.target.connection}"
    more: dict[str, Any] = {
        "schedule": replication.schedule,
        "start_date": START,
        "catchup": False,
        "description": described,
        "params": {
            "topics": topics_field(replication),
            "until": Param(
                LATEST,
                type=["null", "string"],
                title="Until",
                description=(
                    "Where to stop: latest, or an RFC 3339 time with its zone such as 2030-01-31T06:00:00Z; empty means"
                    " latest."
                ),
            ),
            "dry_run": dry_run_field(False),
        },
    }
    if replication.progress == "interval":
        assert replication.schedule is not None  # the model's rule
        more = {
            "schedule": CronDataIntervalTimetable(replication.schedule, "UTC"),
            "start_date": replication.start_from,
            "catchup": True,
            "description": f"{described}, one data interval a run",
        }
    return DAG(
        dag_id=replication.name,
        max_active_runs=1,
        doc_md=doc_md(replication),
        tags=list(replication.tags),
        default_args=default_args(replication),
        **more,
    )


def doc_md(replication: Replication) -> str:
    """The description from the file, then a summary of its settings."""
    topics = ", ".join(f"`{entry}`" for entry in replication.topics.include)
    without = ", ".join(f"`{entry}`" for entry in replication.topics.exclude)
    given = replication.topics.rename
    renames = [given] if isinstance(given, str) else [f"{entry} → {name}" for entry, name in given.items()]
    renamed = ", ".join(f"`{each}`" for each in renames).replace("|", "&#124;")
    name, by_interval = replication.name, replication.progress == "interval"
    airflows = "copies past data intervals" if by_interval else "only repeats the DAG for past dates"
    due = "each data interval" if by_interval else "the last data interval"
    paused = (
        f"\n\nTo trigger this DAG while it is paused switches it on: Airflow first starts the scheduled run of {due}"
        " that is due, and the run that you triggered waits behind it."
        if replication.schedule is not None
        else ""
    )
    dry = "" if by_interval else "**Dry run** in the form of Trigger shows what would be copied. "
    besides = (
        f"{dry}Beside this DAG: `{name}{names.AUDIT_SUFFIX}` compares what was copied with the source;"
        f" `{name}{names.FAILED_SUFFIX}` lists, retries or discards records that could not be copied;"
        f" `{name}{names.REPAIR_SUFFIX}` approves a gap, or starts a topic again."
    )
    if not replication.not_one_to_one:
        besides += (
            f" `{name}{names.DRILL_SUFFIX}` says what would be left if the source died now;"
            f" `{name}{names.TURN_SUFFIX}` cuts over, gives the source up, or goes back to it."
        )
    summary = f"""\
| | |
| --- | --- |
| source | connection `{replication.source.connection}` |
| target | connection `{replication.target.connection}` |
| topics | {topics.replace("|", "&#124;")}{f", without {without.replace('|', '&#124;')}" if without else ""} |
| called on the target | {renamed} |
| schedule | {f"`{replication.schedule}` (UTC)" if replication.schedule else "by hand"} |
| read back | by {replication.verify.level} |

**When a run failed**, the log of `report` (and its XCom `summary`) names each range with its remedy. Follow it, then
clear **`replicate` and downstream**: Airflow repeats only what is left, and nothing is copied twice. If `plan` failed,
its log names the reason and the remedy; then, or if it refused a partition, trigger a new run instead. A run that went
well outside of Airflow does not turn a failed one here green: `kafka-replication status` says how things stand.

Airflow's own card *Backfill* {airflows}. To copy a range that you name, use `{name}{names.BACKFILL_SUFFIX}`.{paused}

{besides}
"""
    return f"{replication.description.strip()}\n\n{summary}" if replication.description.strip() else summary


def by_hand(replication: Replication, suffix: str, description: str, doc: str, params: Params, **more: Any) -> DAG:
    """A DAG beside that of the replication, which only a person triggers, and whose tasks are not tried again, unless
    ``more`` says so. The form has names, numbers, times and switches only, never client settings.
    """
    usual = {"start_date": START, "default_args": {"retries": 0}, "schedule": None}
    return DAG(
        dag_id=f"{replication.name}{suffix}",
        catchup=False,
        description=description,
        doc_md=doc,
        tags=[*replication.tags, suffix.removeprefix(".")],
        params=params,
        **{**usual, **more},
    )


def build_backfill_dag(replication: Replication) -> DAG:
    """``plan >> replicate >> report``, never scheduled. One at a time, beside live runs with other target topics."""
    # `kafka_replication.planning.backfill_request` reads the values of the form.
    params = {
        "topics": topics_field(replication),
        "partitions": Param(
            None, title="Partitions", description="Only these partitions, such as 0, 3; empty means all."
        ),
        "from": Param(None, title="From", description=f"{POINT}; empty means the first record that the source has."),
        "until": Param(
            None,
            title="Until",
            description=f"{POINT}; the range ends just before it; empty means the present end.",
        ),
        "target_topic": text_field(
            "Target topic",
            "Copy to this topic instead of the replication's own, in the source's order; name one source topic only."
            " Empty means the replication's own.",
        ),
        "dry_run": dry_run_field(True),
    }
    page = f"""\
Copies a range of `{replication.name}` that you name: offsets or times, of some topics and partitions, to the
replication's own target topics or to another one. **Start with a dry run**, which is on in the form: the log of `plan`
says which part of the range is already on the target, which part is gone from the source, how much would be copied,
whether it would lie after newer records, and how long the target keeps records that old.

A backfill copies only what is not on the target, so you can repeat it. After a failure clear
**`replicate` and downstream**.
"""
    with by_hand(
        replication,
        names.BACKFILL_SUFFIX,
        f"Copies a range of {replication.name} that the trigger's form names",
        page,
        params,
        max_active_runs=1,
        start_date=None,
        default_args=default_args(replication),
    ) as dag:
        add_tasks(replication, BackfillPlanOperator(task_id="plan", replication=replication))
    return dag
