"""The obstacles that ``cutover``, ``failover`` and ``failback`` name, and the refusals of a direction that is sealed.
docs/errors.md lists them. ``source`` and ``target`` are connections.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kafka_replication.model.errors import Refused


@dataclass(frozen=True, slots=True)
class Obstacle:
    """One of them, with the names of its values in braces. ``name`` is an anchor in docs/errors.md."""

    name: str
    what: str
    remedy: str

    def text(self, **values: Any) -> str:
        """For people: what is in the way, and what to do."""
        return f"{self.what.format(**values)}. Remedy: {self.remedy.format(**values)}"

    def refused(self, **values: Any) -> Refused:
        return Refused(self.what.format(**values), self.remedy.format(**values))


class NotYet(Exception):
    """The reason, for people, why a step cannot be done now."""

    def __init__(self, obstacle: Obstacle, **values: Any) -> None:
        super().__init__(obstacle.text(**values))


SEALED = Obstacle(
    "sealed",
    "{partition}: this direction was sealed {seal}; nothing more is copied to {topic}",
    "if the source is to be used again, and nothing was written to the target since: kafka-replication failover"
    " {replication}.yaml --undo; if others have written there: kafka-replication failback; else remove the file or its"
    " schedule",
)
SEALED_AND_FOLLOWED = Obstacle(
    "sealed-and-followed",
    SEALED.what,
    "run {other} instead, which goes on behind it in the other direction",
)
CANNOT_BE_SEALED = Obstacle(
    "cannot-be-sealed",
    "{replication}: a direction with this {settings} cannot be sealed",
    "only a Kafka target with partitioning: keep, delivery: exactly_once and one writer can",
)
NOTHING_COPIED = Obstacle(
    "nothing-copied",
    "{replication}: nothing was copied yet",
    "the target has nothing to go on with: let a run copy first (kafka-replication run)",
)
OTHER_DELIVERY = Obstacle(
    "other-delivery",
    "{partition}: its records were copied with delivery {delivery}",
    "only what was copied with exactly_once can be sealed: let a run copy with it first, or reset the topic",
)
SEAL_FOLLOWED = Obstacle(
    "seal-followed",
    "{partition}: the replication {other} goes on behind this seal, in the other direction: records would go round",
    "call the failback again, which ends {other} and opens this direction; to stay where you are, seal {other}"
    " (kafka-replication cutover or failover)",
)
TARGET_MOVED = Obstacle(
    "target-moved",
    "target partitions that do not end where they were sealed: {count}; the first is {partition}: it ended at {was}"
    " and ends at {end}. Others have written there, or it lost data, or it does not answer: a copy cannot go on",
    "bring their records back first (kafka-replication failback), or keep the target as it is",
)
NOT_SEALED_ANY_MORE = Obstacle(
    "not-sealed-any-more",
    "{partition}: it is not sealed any more",
    "another command is at work: call this one again when it has ended",
)
ABORTED_TOO_LATE = Obstacle(
    "aborted-too-late",
    "{replication} is sealed: others may have written to {target}",
    "bring their records back (kafka-replication failback); if nobody has, kafka-replication failover --undo",
)
DENIED_BY_OTHERS = Obstacle(
    "denied-by-others",
    "{topic}: a rule that denies everybody to write is on {source} already, and not ours",
    "remove the rule, or call the command without --deny-producers",
)
SEALED_OTHERWISE = Obstacle(
    "sealed-otherwise",
    "a part of {replication} was sealed {seal}",
    "end what was begun: kafka-replication failover {replication}.yaml --apply, or --undo",
)
RANGES_FAILED = Obstacle("ranges-failed", "a run of {replication} failed in {failed}; {partition}: {error}", "{remedy}")
NOT_VERIFIED = Obstacle(
    "not-verified",
    "{partition}: {offsets} are not verified on {target}",
    "call the command again; if they stay, see the report of the last run",
)
STILL_WRITTEN = Obstacle(
    "still-written",
    "producers still write: the last time to {partitions} on {source}",
    "stop them; a cut-over can also deny it to all but super users (--deny-producers)",
)
MEMBERS_AT_WORK = Obstacle(
    "members-at-work",
    "group {groups} still has members on {source}, or had until now",
    "stop them, and call the command again",
)
GROUP_NOT_MOVED = Obstacle(
    "group-not-moved",
    "group {group} is not moved: {why}",
    "remove that and call the command again, or leave the group out (groups.exclude)",
)
AUDIT_DIFFERS = Obstacle(
    "audit-differs",
    "{target} has not what {source} has: {report}",
    "see docs/gaps-and-audit.md; nothing was sealed",
)
NOT_ALL_VERIFIED = Obstacle(
    "not-all-verified",
    "the certificate would say that not everything is verified, in {partitions}; {reason}",
    "decide about it (docs/failed-records.md, docs/gaps-and-audit.md) and call the command again; or seal it as it is:"
    " kafka-replication failover",
)
WRITTEN_WHILE_SEALED = Obstacle(
    "written-while-sealed",
    "{partition}: somebody wrote on {source} while it was sealed, so it was opened again",
    "stop all producers there, and call the command again",
)
SWAPPED = Obstacle(
    "files-swapped",
    "nothing was copied by {replication} yet, and {other} is sealed: the two files are in the wrong order",
    "name the sealed direction first: kafka-replication failback {other}.yaml {replication}.yaml",
)
WRITTEN_SINCE = Obstacle(
    "written-since",
    "{source} has {offsets} more, the first of {partition}: somebody wrote there just before it was sealed, or since",
    "stop all producers there. If nobody has written to the target: kafka-replication failover {replication}.yaml"
    " --undo, and cut over again; else go back with kafka-replication failback, and cut over again",
)
FIRST_NOT_SEALED = Obstacle(
    "first-not-sealed",
    "{partition}: {replication} is not sealed",
    "cut it over, or give its source up, first (kafka-replication cutover or failover)",
)
LOST_END = Obstacle(
    "source-lost-end",
    "{partition}: {source} ends at {end}, but was copied up to {copied}: it lost its end, and these records are only on"
    " {target}",
    "keep {target}, and copy it to new topics",
)
OTHER_SEALED = Obstacle(
    "other-direction-sealed",
    "{partition}: {other} was sealed {seal}",
    "to go on from there, name it first: kafka-replication failback {other}.yaml {replication}.yaml",
)
OTHER_COPIES = Obstacle(
    "other-direction-copies",
    "{partition}: {other} copies it already, not behind this seal",
    "seal {other} first (kafka-replication cutover or failover)",
)
CREATED_ANEW = Obstacle(
    "topic-created-anew",
    "{partition}: the topic on {source} was deleted or created anew",
    "copy {target} to new topics",
)
COMPACTED = Obstacle(
    "compacted-surplus",
    "{partition}: the topic is compacted, and {source} has {offsets} that never arrived: the newest record of a key"
    " would be another one on each side",
    "have them set aside (--surplus-aside)",
)
SURPLUS_SELECTED = Obstacle(
    "surplus-selected",
    "{replication} selects {topic}: it would copy it to {source}",
    "leave it out of its file (topics.exclude)",
)
SURPLUS_FAILED = Obstacle("surplus-not-copied", "{partition} {range}: {error}", "{remedy}")
SURPLUS_TOO_LATE = Obstacle(
    "surplus-too-late",
    "{partition}: what only {source} has was not set aside before the other direction began",
    "call the command without --surplus-aside: it stays where it is",
)
SURPLUS_GREW = Obstacle(
    "surplus-grew",
    "{partition}: somebody has written to {source} meanwhile",
    "stop all producers there, and call the command again",
)
LAST_DIFFER = Obstacle(
    "last-records-differ",
    "{partition}: the last records that {replication} copied are not the same on both sides: one of them lost its end"
    "\n{report}",
    "audit it (kafka-replication audit); keep what is right, and copy it to new topics",
)
WRITTEN_MEANWHILE = Obstacle(
    "written-meanwhile",
    "{offsets} were written to {source} meanwhile, the first of them to {partition}",
    "stop all producers there, and call the command again",
)
ALL = tuple(value for value in tuple(vars().values()) if isinstance(value, Obstacle))
