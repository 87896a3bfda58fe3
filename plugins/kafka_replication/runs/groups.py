"""Moves consumer groups: what they have committed on the source is translated and committed on the target.

Needs no lease: it writes to no topic. The receipts are read only if a group has moved on the source, or if its place is
no longer on the target. A group that has members there is left alone: the brokers refuse the commit.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from kafka_replication.config import Replication
from kafka_replication.documents import GroupPlaceRow, GroupRow, GroupState
from kafka_replication.kafka import AdminClient, clients, groups, offsets, topics
from kafka_replication.kafka.groups import ActiveGroup, Committed
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.errors import BadInput, ReplicationError
from kafka_replication.model.offsets import OffsetRange, PartitionKey, TopicPartition
from kafka_replication.model.rights import Operation, Resource, Right
from kafka_replication.model.times import now
from kafka_replication.model.trouble import Trouble
from kafka_replication.planning.group_places import GroupPlaces
from kafka_replication.planning.live import own
from kafka_replication.reporting.groups import GroupsDocument
from kafka_replication.runs.run import Run

log = logging.getLogger(__name__)
# Brokers forget the offsets of a group that nobody uses after offsets.retention.minutes, 7 days by default. They count
# from the last commit as long as the group never had a member.
AGAIN_AFTER: Final = 86_400.0  # seconds
_STREAMS: Final = ("-changelog", "-repartition")  # topics that an application of Kafka Streams makes: id-name-changelog
_MOVABLE: Final = ("classic", "consumer")
SEALED: Final = "this direction is sealed: its groups are moved no more"
NOT_COPIED: Final = "nothing of this partition was copied yet"
_MOST: Final = 20  # groups that one finding names


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """One group on both sides."""

    group: str
    kind: str
    source: Mapping[TopicPartition, Committed | None]  # of the topics of the replication
    target: Mapping[TopicPartition, Committed | None]
    left_out: str = ""  # why it is not moved


def move(run: Run, *, apply: bool, only: Collection[str] = (), foreseen: LedgerView | None = None) -> GroupsDocument:
    """Translate the places of all groups that the file selects, or of ``only`` some of them, and commit them if
    ``apply`` says so. The store remembers what was seen, where all groups were. ``foreseen``: the ledger as it will be,
    for a dry run of what is not copied yet.

    Raises Unreachable, LedgerUnreadable, and BadInput where the file selects no group, or none of this name. What
    concerns one group is in its row.
    """
    chosen = run.replication.groups
    if not chosen.include:
        raise BadInput(
            f"{run.replication.name} selects no consumer group", "write groups: {include: [...]} in its file"
        )
    if unknown := [name for name in only if not chosen.selects(name)]:
        raise BadInput(
            f"the file does not select the groups {', '.join(unknown)}", "correct the name, or groups.include"
        )
    if apply and own(run.replication, run.view()).is_sealed:  # whoever works on the target now is not disturbed
        last = seen_last(run)
        return replace(last, groups=[replace(row, why=SEALED) for row in last.groups])
    admins = run.clusters.source_admin, clients.shared_admin(run.clusters.target_connection)
    seen, failed = _look(run.replication, *admins, only)
    known = {row.group: row for row in run.store.groups(run.replication.name)}
    idle = {one.group: known[one.group] for one in seen if _is_idle(one, known.get(one.group))}
    moving = [one for one in seen if one.group not in idle and not one.left_out]
    ends, _ = offsets.last_stable_each(admins[0], sorted({at for one in moving for at in one.source}))
    translated = _translated(run, admins[1], moving, ends, foreseen=foreseen)
    # One that cannot be read now keeps its places: they are all that is left if the source is lost.
    rows = [
        replace(row, partitions=before.partitions, moved_at=before.moved_at)
        if (before := known.get(row.group))
        else row
        for row in failed
    ]
    for one in seen:
        if (row := idle.get(one.group)) is not None:
            places = tuple(replace(place, state="in step") for place in row.partitions)
            rows.append(replace(row, state="in step", partitions=places))
            continue
        row = _row(one, translated.get(one.group, ()), known.get(one.group))
        rows.append(_committed(admins[1], one, row) if apply else row)
    rows.sort(key=lambda row: row.group)
    document = GroupsDocument(
        replication=run.replication.name,
        applied=apply,
        groups=rows,
        problems=_missing(run.replication, {row.group for row in rows}) if not only else (),
    )
    if apply:
        others = known if only else {}
        stored = {**others, **{row.group: row for row in rows}}
        run.store.record_groups(run.replication.name, stored.values())
    return document


def move_as_seen(run: Run, ends: Mapping[TopicPartition, int], *, apply: bool) -> GroupsDocument:
    """The same without the source: from the places where the store says that the groups were seen the last time, and
    without the metadata of their commits. ``ends`` has the source's ends, as far as they are known.

    Raises Unreachable, LedgerUnreadable.
    """
    target = clients.shared_admin(run.clusters.target_connection)
    stored = run.store.groups(run.replication.name)
    rows = {row.group: row for row in stored if row.partitions}
    placed, failed = groups.committed(target, sorted(rows))
    seen = [
        _Seen(
            group=name,
            kind=row.kind,
            source={place.source: Committed(place.committed) for place in row.partitions if place.committed >= 0},
            target=placed.get(name, {}),
        )
        for name, row in sorted(rows.items())
        if name not in failed
    ]
    translated = _translated(run, target, seen, ends, given_up=True)
    done = [replace(rows[name], state="failed", why=str(error)) for name, error in failed.items()]
    done += [
        row if row.state == "left out" else replace(row, state="failed", why="its places at the source were never seen")
        for row in stored
        if not row.partitions
    ]
    for one in seen:
        row = _row(one, translated.get(one.group, ()), rows[one.group])
        done.append(_committed(target, one, row) if apply else row)
    if apply:
        run.store.record_groups(run.replication.name, done)
    done.sort(key=lambda row: row.group)
    return GroupsDocument(replication=run.replication.name, applied=apply, groups=done, problems=())


def seen_last(run: Run) -> GroupsDocument:
    """The groups as a run, or somebody, saw and moved them the last time."""
    rows = run.store.groups(run.replication.name)
    return GroupsDocument(replication=run.replication.name, applied=False, groups=rows, problems=())


def follow(run: Run) -> None:
    """Move the groups of a run that has verified what it copied. An error is logged: the next run moves them."""
    if not run.replication.groups.include:
        return
    try:
        document = move(run, apply=True)
    except ReplicationError as error:
        log.warning("%s: consumer groups were not moved: %s", run.replication.name, error)
        return
    moved = [row.group for row in document.groups if row.state == "moved"]
    log.info("%s: %d of %d consumer groups moved", run.replication.name, len(moved), len(document.groups))
    for row in document.groups:
        if row.state == "failed":
            log.warning("%s: group %s: %s", run.replication.name, row.group, row.why)


def check(run: Run) -> Iterator[Trouble]:
    """Findings about the groups that the file selects: those that are not there or cannot be moved. Raises
    Unreachable.
    """
    if not run.replication.groups.include:
        return
    target = clients.shared_admin(run.clusters.target_connection)
    seen, failed = _look(run.replication, run.clusters.source_admin, target, ())
    login = run.clusters.logins["target"]
    for group in groups.without_right(target, [one.group for one in seen if not one.left_out])[:_MOST]:
        right = Right(side="target", operation=Operation.READ, resource=Resource.GROUP, name=group)
        yield Trouble(
            "error", str(login.cluster), f"{right} is missing", right.command(login.cluster.address, login.principal)
        )
    for row in failed:
        yield Trouble("error", f"group {row.group}", row.why, "see docs/consumer-groups.md")
    for one in seen:
        if one.left_out:
            yield Trouble("warning", f"group {one.group}", one.left_out, "name it in groups.exclude")
    for problem in _missing(run.replication, {one.group for one in seen} | {row.group for row in failed}):
        yield Trouble("warning", "groups.include", problem, "correct it, or grant Describe on the group at the source")


def _missing(replication: Replication, there: Collection[str]) -> list[str]:
    """A text for each group that the file names and that has committed nothing of the topics of the replication."""
    return [
        f"group {name} has no committed offsets of these topics at the source, or may not be described"
        for name in replication.groups.include
        if not name.startswith("^") and replication.groups.selects(name) and name not in there
    ]


def _look(
    replication: Replication, source: AdminClient, target: AdminClient, only: Collection[str]
) -> tuple[list[_Seen], list[GroupRow]]:
    """The selected groups that have committed offsets of the replication's topics, and those that cannot be read."""
    kinds, there = groups.kinds(source), groups.kinds(target)
    wanted = {name for name in kinds if replication.groups.selects(name) and (not only or name in only)}
    own, failed = groups.committed(source, [name for name in wanted if kinds[name] in _MOVABLE])
    own = {
        name: {at: place for at, place in places.items() if replication.selects(at.topic)}
        for name, places in own.items()
    }
    own = {name: places for name, places in own.items() if places}
    placed, unread = groups.committed(target, [name for name in own if there.get(name) in _MOVABLE])
    failed |= unread
    made = topics.names(source) if own else []
    seen = list[_Seen]()
    for name in sorted(wanted - failed.keys()):
        why = ""
        if kinds[name] not in _MOVABLE:
            why = f"it is a group of another kind ({kinds[name]}): its offsets are no consumer's"
        elif name not in own:
            continue
        elif there.get(name, _MOVABLE[0]) not in _MOVABLE:
            why = f"on the target this name is a group of another kind ({there[name]})"
        elif any(topic.startswith(f"{name}-") and topic.endswith(_STREAMS) for topic in made):
            why = "it is an application of Kafka Streams, whose state does not move with its offsets"
        seen.append(
            _Seen(group=name, kind=kinds[name], source=own.get(name, {}), target=placed.get(name, {}), left_out=why)
        )
    return seen, [_failed(name, kinds[name], error) for name, error in failed.items()]


def _is_idle(seen: _Seen, row: GroupRow | None) -> bool:
    """True if nothing is to be done for the group: it committed nothing new, and all of its places are exact and on
    the target: further on, or committed by us and not old.
    """
    if row is None or row.state not in ("moved", "in step") or seen.left_out:
        return False
    least = 1 if _is_old(row) else 0
    places = {place.source: place for place in row.partitions}
    return seen.source.keys() == places.keys() and all(
        committed is not None
        and committed.offset == places[at].committed
        and not places[at].again
        and (there := seen.target.get(TopicPartition(places[at].target_topic, at.partition))) is not None
        and there.offset >= (places[at].place or 0) + least
        for at, committed in seen.source.items()
    )


def _translated(
    run: Run,
    target: AdminClient,
    seen: Collection[_Seen],
    ends: Mapping[TopicPartition, int],
    *,
    given_up: bool = False,
    foreseen: LedgerView | None = None,
) -> dict[str, list[GroupPlaceRow]]:
    """The rows of these groups, as they are before anything is committed. ``given_up``: the source is."""
    if not seen:
        return {}
    name, ledger = run.replication.name, run.view()
    view = foreseen or ledger
    wanted = sorted({at for one in seen for at in one.source})
    keys = {at: PartitionKey(name, at, run.replication.target_name(at.topic)) for at in wanted}
    opened = {at: key for at, key in keys.items() if key in view.positions}
    receipts = run.clusters.ledger.receipts({key: None for key in opened.values() if key in ledger.positions})
    receipts = replace(receipts, stored={**dict.fromkeys(opened.values(), ()), **receipts.stored})
    logs = offsets.all_three(target, [key.target for key in opened.values()])
    places = dict[TopicPartition, GroupPlaces]()
    for at, key in opened.items():
        if not isinstance(log := logs[key.target], Trouble):
            end = max(log.high_watermark, view.positions[key].target_end if foreseen else 0)
            places[at] = GroupPlaces.of(view[key], receipts, OffsetRange(log.log_start, end), ends=given_up)

    def row_of(one: _Seen, at: TopicPartition) -> GroupPlaceRow:
        committed, copy = one.source[at], keys[at].target
        row = GroupPlaceRow(
            source=at,
            target_topic=copy.topic,
            committed=-1 if committed is None else committed.offset,
            lag=-1 if committed is None or at not in ends else max(0, ends[at] - committed.offset),
            place=None,
            again=0,
            state="refused",
            why="",
        )
        if committed is None:
            return replace(row, state="waiting", why="an open transaction is about to commit its offset")
        if at not in places:
            why = str(logs[copy]) if copy in logs else NOT_COPIED
            return replace(row, why=why)
        there = one.target.get(copy)
        found = places[at].beside(committed.offset, there.offset if there else None)
        log_end = places[at].log.until
        if found.offset > log_end:
            return replace(row, why=f"the target ends at {log_end}, before the place {found.offset}: it lost data")
        row = replace(row, place=found.offset, again=found.again, why=found.why)
        if there is None and copy in one.target:
            return replace(row, state="waiting", why="an open transaction is about to commit its place on the target")
        if there is None or there.offset < found.offset:
            return replace(row, state="planned")
        # It may have read some of those behind its place at the source, too: ``again`` counts them.
        return replace(row, state="ahead" if there.offset > found.offset else "in step")

    return {one.group: [row_of(one, at) for at in sorted(one.source)] for one in seen}


def _row(one: _Seen, places: Collection[GroupPlaceRow], before: GroupRow | None) -> GroupRow:
    planned = any(place.state == "planned" for place in places)
    # A place that the group has passed since is not written again.
    old = before is not None and _is_old(before) and any(place.state == "in step" for place in places)
    refused = next((place.why for place in places if place.state == "refused"), "")
    at_rest: GroupState = "failed" if refused else "in step"
    return GroupRow(
        group=one.group,
        kind=one.kind,
        state="left out" if one.left_out else "planned" if planned or old else at_rest,
        lag=sum(max(0, place.lag) for place in places),
        exact=sum(place.place is not None and not place.again for place in places),
        again=sum(place.again for place in places),
        moved_at=before.moved_at if before else "",
        why=one.left_out or (refused if not planned and not old else ""),
        partitions=tuple(places),
    )


def _is_old(row: GroupRow) -> bool:
    """True if its places have to be written again, before the brokers forget them."""
    return row.moved_at < now(AGAIN_AFTER)


def _failed(group: str, kind: str, error: ReplicationError) -> GroupRow:
    return GroupRow(
        group=group, kind=kind, state="failed", lag=0, exact=0, again=0, moved_at="", why=str(error), partitions=()
    )


def _committed(target: AdminClient, one: _Seen, row: GroupRow) -> GroupRow:
    """Commit the planned places of the group. The row after it."""
    if row.state != "planned":
        return row
    try:
        # Read again just before: a member may have joined, read on and left since.
        there = groups.committed(target, [row.group])[0].get(row.group, {})
        wanted = {
            TopicPartition(place.target_topic, place.source.partition): place
            for place in row.partitions
            if place.place is not None and place.state in ("planned", "in step")
        }
        current = {at: there.get(at) for at in wanted}
        wanted = {
            at: place
            for at, place in wanted.items()
            if (now_there := current[at]) is None or now_there.offset <= (place.place or 0)
        }
        commits = {
            at: Committed(place.place or 0, committed.metadata)
            for at, place in wanted.items()
            if (committed := one.source[place.source]) is not None
        }
        if not commits:  # a member has joined, read on and left meanwhile
            return replace(row, state="in step")
        errors = groups.commit(target, row.group, commits)
    except ActiveGroup:
        return replace(row, state="active", why="it has members on the target: stop them, or leave it as it is")
    except ReplicationError as error:
        return replace(row, state="failed", why=str(error))

    def after(place: GroupPlaceRow) -> GroupPlaceRow:
        at = TopicPartition(place.target_topic, place.source.partition)
        if at in errors:
            return replace(place, state="refused", why=errors[at])
        if at in commits:
            return replace(place, state="moved")
        return replace(place, state="ahead") if place.state == "planned" else place

    done = tuple(map(after, row.partitions))
    failed = any(place.state == "refused" for place in done)
    return replace(row, state="failed" if failed else "moved", moved_at=now(), partitions=done)
