"""The text of a DAG's page about its replication."""

from __future__ import annotations

from kafka_replication.config import Replication
from kafka_replication.config.values.names import AUDIT_SUFFIX, BACKFILL_SUFFIX, FAILED_SUFFIX, REPAIR_SUFFIX


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
