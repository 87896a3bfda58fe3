"""What a DAG's page says about its replication."""

from __future__ import annotations

from kafka_replication.config import Replication


def doc_md(replication: Replication) -> str:
    """The file's own description, then a summary made from its settings."""
    topics = ", ".join(f"`{each}`" for each in replication.topics.include)
    without = ", ".join(f"`{each}`" for each in replication.topics.exclude)
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
**`copy` and downstream**: only what is left is done again, nothing is copied twice. If `plan` failed, or it refused a
partition, trigger a new run instead.
"""
    return f"{replication.description.strip()}\n\n{summary}" if replication.description.strip() else summary


def backfill_md(replication: Replication) -> str:
    """What the page of a backfill DAG says."""
    return f"""\
Copies a range of `{replication.name}` that you name: offsets or times, of some topics and partitions, to the
replication's own target topics or to another one. **Start with a dry run**: its log says what of the range is on the
target already, what is gone from the source, how much would be copied, whether it would land
after newer records, and how long the target keeps records that old.

Only what is not on the target is copied, so a backfill can be repeated. After a failure clear
**`copy` and downstream**.
"""
