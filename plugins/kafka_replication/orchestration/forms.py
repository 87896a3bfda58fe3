"""The fields that the forms of several DAGs have.

Airflow's page does not send a field that is empty, unless its type allows null; an emptied field is null. The parser of
the command line reads the values, so that a person sees its messages. A pattern in the form would be answered with the
schema instead. A field without a type is one line of text that takes anything.

The text of a DAG's page about its replication.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import Param

from kafka_replication.config import Replication
from kafka_replication.config.names import AUDIT_SUFFIX, BACKFILL_SUFFIX, FAILED_SUFFIX, REPAIR_SUFFIX, is_pattern

POINT = "An offset, or an RFC 3339 time with its zone such as 2030-01-31T06:00:00Z"


def number_field(title: str, highest: int, description: str, lowest: int = 0) -> Param:
    """A whole number from ``lowest`` to ``highest``."""
    return Param(None, type=["null", "integer"], minimum=lowest, maximum=highest, title=title, description=description)


def text_field(title: str, description: str, *values: str) -> Param:
    """A text, for which the form offers ``values``."""
    some: dict[str, Any] = {"examples": list(values)} if values else {}
    return Param(None, type=["null", "string"], title=title, description=description, **some)


def topics(replication: Replication) -> Param:
    """Offers the topics to choose from if the file names each of them."""
    names = replication.topics.include
    offered = [] if any(map(is_pattern, names)) else sorted(names)
    offers: dict[str, Any] = {"examples": offered} if offered else {}
    return Param(
        None,
        type=["null", "array"],
        items={"type": "string"},
        title="Topics",
        description=f"Only these source topics of the replication{'' if offered else ', one a line'}; empty means all.",
        **offers,
    )


def dry_run(default: bool) -> Param:
    text = "Only show what would be done, in the log and the XCom of the task plan; change nothing."
    return Param(default, type="boolean", title="Dry run", description=text)


def lines(value: object) -> object:
    """The lines of a list without empty ones: Airflow's page sends an empty line for a list that was just emptied."""
    return [line for line in value if line != ""] if isinstance(value, (list, tuple)) else value


def text(value: object) -> str:
    """One line of text. Blanks alone, left in an emptied field, count as nothing."""
    return str(value or "").strip()


def doc_md(replication: Replication) -> str:
    """The description from the file, then a summary of its settings."""
    topics = ", ".join(f"`{entry}`" for entry in replication.topics.include)
    without = ", ".join(f"`{entry}`" for entry in replication.topics.exclude)
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
    repair = f"; `{name}{REPAIR_SUFFIX}` approves a gap, or starts a topic again" if replication.dags.repair else ""
    besides = (
        f"{dry}Beside this DAG: `{name}{AUDIT_SUFFIX}` compares what was copied with the source;"
        f" `{name}{FAILED_SUFFIX}` lists, retries or discards records that could not be copied{repair}."
    )
    summary = f"""\
| | |
| --- | --- |
| source | connection `{replication.source.connection}` |
| target | connection `{replication.target.connection}` |
| topics | {topics.replace("|", "&#124;")}{f", without {without.replace('|', '&#124;')}" if without else ""} |
| called on the target | `{replication.topics.rename}` |
| schedule | {f"`{replication.schedule}` (UTC)" if replication.schedule else "by hand"} |
| read back | by {replication.verify.level} |

**When a run failed**, the log of `report` (and its XCom `summary`) names each range with its remedy. Follow it, then
clear **`replicate` and downstream**: Airflow repeats only what is left, and nothing is copied twice. If `plan` failed,
its log names the reason and the remedy; then, or if it refused a partition, trigger a new run instead. A run that went
well outside of Airflow does not turn a failed one here green: `kafka-replication status` says how things stand.

Airflow's own card *Backfill* {airflows}. To copy a range that you name, use `{name}{BACKFILL_SUFFIX}`.{paused}

{besides}
"""
    return f"{replication.description.strip()}\n\n{summary}" if replication.description.strip() else summary


def backfill_md(replication: Replication) -> str:
    """The text of a backfill DAG's page."""
    return f"""\
Copies a range of `{replication.name}` that you name: offsets or times, of some topics and partitions, to the
replication's own target topics or to another one. **Start with a dry run**, which is on in the form: the log of `plan`
says which part of the range is already on the target, which part is gone from the source, how much would be copied,
whether it would lie after newer records, and how long the target keeps records that old.

A backfill copies only what is not on the target, so you can repeat it. After a failure clear
**`replicate` and downstream**.
"""
