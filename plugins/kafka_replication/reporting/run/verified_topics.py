"""The target topics of which a run has verified something: what a downstream consumer may read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from kafka_replication.model.keys import PartitionKey
from kafka_replication.reporting.run.report import RangeReport, RunReport
from kafka_replication.watermarks.values import RangeOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedTopic:
    """One target topic and its verified ranges of source offsets, in their order."""

    topic: str
    ranges: tuple[RangeReport | RangeOutcome, ...]

    def extra(self, report: RunReport) -> dict[str, Any]:
        """The event's extra. ``records`` were copied by the run, or by the failed ones before it; ``watermark`` is the
        next source offset after what is verified.
        """
        return {
            "replication": report.replication,
            "run_id": report.run_id,
            "target_topic": self.topic,
            "records": sum(line.copied for line in self.ranges),
            "bytes": sum(line.bytes for line in self.ranges),
            "verified_by": report.level,
            "partitions": [
                {
                    "topic": line.key.source.topic,
                    "partition": line.key.source.partition,
                    "from": line.range.from_,
                    "until": line.range.until,
                    "records": line.copied,
                    "watermark": line.watermark,
                }
                for line in self.ranges
            ],
        }


def verified_topics(
    report: RunReport,
    before: Iterable[RangeOutcome] = (),
    *,
    died: Collection[str] = (),
    planned: Collection[str] = (),
) -> list[VerifiedTopic]:
    """The topics that this run has verified, by name. ``before``: the outcomes of the failed runs of its kind since the
    last one that ended well; what these verified counts, too, because a failed run announces nothing.

    None if any range of the run failed. A topic of which nothing was verified is left out, and so is one with a
    partition that failed before and was not verified since: this run may have been one of other topics.

    ``died`` has the ids of those earlier runs that died. They name no range that they did not reach, so what they
    verified counts only for the topics that this run ``planned``, of which it says that nothing is left.
    """
    if report.failed:
        return []
    found = defaultdict[str, list[RangeReport | RangeOutcome]](list)
    failed = dict[PartitionKey, bool]()  # by the newest line of each partition
    certain = (outcome for outcome in before if outcome.run_id not in died or outcome.key.target_topic in planned)
    in_time: tuple[RangeReport | RangeOutcome, ...] = (*certain, *report.ranges)
    for line in in_time:
        failed[line.key] = bool(line.error)
        if not line.error:
            found[line.key.target_topic].append(line)
    unfinished = {key.target_topic for key, has_failed in failed.items() if has_failed}
    return [
        VerifiedTopic(topic=topic, ranges=tuple(sorted(lines, key=lambda line: (line.key, line.range.from_))))
        for topic, lines in sorted(found.items())
        if topic not in unfinished
    ]
