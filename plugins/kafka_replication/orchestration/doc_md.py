"""The text of a DAG's page about its replication."""

from __future__ import annotations

from kafka_replication.config import Replication


def doc_md(replication: Replication) -> str:
    """The description from the file, then a summary of its settings."""
    topics = ", ".join(f"`{entry}`" for entry in replication.topics.include)
    without = ", ".join(f"`{entry}`" for entry in replication.topics.exclude)
    summary = f"""\
| | |
| --- | --- |
| source | connection `{replication.source.connection}` |
| target | connection `{replication.target.connection}` |
| topics | {topics.replace("|", "&#124;")}{f", without {without.replace('|', '&#124;')}" if without else ""} |
| called on the target | `{replication.topics.rename}` |
| schedule | {f"`{replication.schedule}` (UTC)" if replication.schedule else "by hand"} |
| read back | by {replication.verify.level} |

**When a run failed**, the log of `report` names each range with its remedy. Follow it, then clear
**`replicate` and downstream**: Airflow repeats only what is left, and nothing is copied twice. If `plan` failed, or
refused a partition, trigger a new run instead.
"""
    return f"{replication.description.strip()}\n\n{summary}" if replication.description.strip() else summary


def backfill_md(replication: Replication) -> str:
    """The text of a backfill DAG's page."""
    return f"""\
Copies a range of `{replication.name}` that you name: offsets or times, of some topics and partitions, to the
replication's own target topics or to another one. **Start with a dry run**: its log says which part of the range is
already on the target, which part is gone from the source, how much would be copied, whether it would lie after newer
records, and how long the target keeps records that old.

A backfill copies only what is not on the target, so you can repeat it. After a failure clear
**`replicate` and downstream**.
"""
