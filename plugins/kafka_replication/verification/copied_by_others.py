"""Finds where a copy that another tool made ends: compares source and target records by content.

The tool may have repeated stretches of the source after a crash, and its filters may have dropped records. It is
relied on in one point: of the records that it keeps, none is on the target before all earlier ones are. And for the
places of consumer groups in another one: where it repeats records, it goes on from there without leaving any out, so
that all that come later at the source come later on the target, too, perhaps once more.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from kafka_replication.ledger.offset_map import AdoptedPlaces, AdoptedRun
from kafka_replication.model.errors import Refused
from kafka_replication.model.offsets import OffsetRange
from kafka_replication.verification.auditing import CopyEnd

# Offsets of the target that are read first; and source records behind the last copied one that must not be on the
# target, because a filter may have dropped some. Each further step reads twice as many.
STEP = 10_000
# Source and target offsets of records that the tool itself noted: the newest, then each so many times as far from the
# end as the one before. And how many source records are compared, so that equal ones are not confused.
SYNCS, FURTHER, AROUND = 32, 1.2, 100
Row = tuple[int, bytes, int, bytes | None]  # offset, digest, timestamp in ms, and the digest of the key
TO_APPEND = (
    "let the replication write behind what is there (on_existing_target: append, and start_from a time), or copy to an"
    " empty topic (topics.rename)"
)


@dataclass(frozen=True, slots=True)
class Log:
    """One side of a partition: the offsets that can be read, the rows of some of them, and the first offset with this
    timestamp or a later one (the end if there is none). Of the source ``rows`` can have aborted records, too.
    """

    range: OffsetRange
    rows: Callable[[OffsetRange], Iterable[Row]]
    at_time: Callable[[int], int]
    with_aborted: Callable[[OffsetRange], Iterable[Row]] | None = None

    def from_time(self, timestamp: int) -> int:
        """No record before this offset has this timestamp or a later one. A record may have none (-1)."""
        if timestamp < 0:
            return self.range.from_
        return min(max(self.at_time(timestamp), self.range.from_), self.range.until)

    def last(self, offsets: int) -> OffsetRange:
        return OffsetRange(max(self.range.from_, self.range.until - offsets), self.range.until)


def find_end(
    source: Log,
    target: Log,
    *,
    stored: int | None = None,
    syncs: Iterable[tuple[int, int]] = (),
    whole: bool = False,
    compacts: bool = False,
    step: int = STEP,
) -> CopyEnd:
    """The end of the copy in ``target``. Raises Refused if the records do not prove it.

    Reads the end of the target, and the source from the oldest timestamp there on; then more of the target, until it
    has all that can be a copy of a record behind that end, because nothing older is one. ``whole``: all of both sides.
    ``stored``, ``syncs`` and ``compacts`` are as in `OtherCopy`.
    """
    begins, here = source.from_time(0), source.range
    if stored is not None and here.from_ <= stored <= begins == here.until and not any(map(any, source.rows(here))):
        return CopyEnd(next_offset=stored, target_from=target.range.until)  # nothing is left that could be compared
    with closing(_Contents(compacts=compacts, removed_before=begins if here.from_ else -1)) as contents:
        window = target.range if whole else target.last(step)
        contents.add("target", target.rows(window))
        if whole:
            contents.read(source, here)
        while True:
            if (oldest := contents.oldest("target")) is not None:
                contents.read_around(source, source.from_time(oldest), step)
                contents.check_explained(source)
            end = contents.next_offset()
            first = window.from_ - window.span
            if end is not None:
                behind = contents.oldest("source", end)
                first = window.from_ if behind is None else target.from_time(behind)
            if first >= window.from_ or window.from_ == target.range.from_:
                break
            more = OffsetRange(max(target.range.from_, min(first, window.from_ - window.span)), window.from_)
            contents.add("target", target.rows(more))
            window = OffsetRange(more.from_, window.until)
        found = _checked(contents, end, stored, window.from_)
        runs = contents.runs(found.next_offset, window == target.range)
        return replace(found, places=AdoptedPlaces.of(_confirmed(source, target, syncs, runs)))


def _confirmed(
    source: Log, target: Log, syncs: Iterable[tuple[int, int]], runs: Sequence[AdoptedRun]
) -> Sequence[AdoptedRun]:
    """``runs``, and before them those records that the tool noted and that are the same on both sides: ``syncs`` are
    their source and target offsets. The order of `SYNCS` is kept.
    """
    first = runs[0] if runs else AdoptedRun(source.range.until, target.range.until, 0, 0)
    more = list[AdoptedRun]()
    distance = 0.0
    for at_source, at_target in sorted(syncs, reverse=True):
        before = more[-1] if more else first
        if len(more) == SYNCS or at_source < source.range.from_ or at_target < target.range.from_:
            break
        if at_source >= before.source or at_target >= before.target or target.range.until - at_target < distance:
            continue
        distance = FURTHER * (target.range.until - at_target)
        if _is_copy(source, at_source, target, at_target):
            more.append(AdoptedRun(at_source, at_target, 1, first.target - at_target - 1 + first.again))
    return [*reversed(more), *runs]


def _is_copy(source: Log, at_source: int, target: Log, at_target: int) -> bool:
    """True if these two records are equal, and no source record close behind is equal, too."""
    rows = list(source.rows(OffsetRange(at_source, min(at_source + AROUND, source.range.until))))
    copy = next(iter(target.rows(OffsetRange(at_target, at_target + 1))), None)
    if copy is None or not rows or rows[0][0] != at_source or rows[0][1] != copy[1]:
        return False
    return all(row[1] != copy[1] for row in rows[1:])


def _checked(contents: _Contents, end: int | None, stored: int | None, target_from: int) -> CopyEnd:
    if end is None:
        raise Refused(
            "no record of the target can be told apart from the others: which of them were copied cannot be seen",
            TO_APPEND,
        )
    if stored is not None and (lacking := contents.count("source", end, stored)):
        raise Refused(
            f"the tool stored {stored} as the next source offset, but its copy ends before {end}: {lacking} source"
            " records in between are not on the target",
            "find out if the target lost them, or if the offsets are of another copy; adopt --from data goes by the"
            " records alone",
        )
    return contents.judged(end, target_from)


_ON_TARGET = "exists (select 1 from target t where t.digest = s.digest)"
# Target records without a source record, not even one that retention or compaction has removed since.
_FOREIGN = """from target t where not exists (select 1 from source s where s.digest = t.digest)
 and not (:cut and t.time between 0 and (select min(time) from source))
 and not (:compacts and exists (select 1 from source s where s.key = t.key and s.time >= t.time))"""


class _Contents:
    """The rows that were read of both sides, in a private database: on disk where they are many."""

    def __init__(self, *, compacts: bool, removed_before: int) -> None:
        """``removed_before``: the source has removed records before this offset; -1 if it has not."""
        self._compacts, self._removed_before = compacts, removed_before
        self._range: OffsetRange | None = None  # of the source
        self._db = sqlite3.connect("", isolation_level=None)
        for setting in ("journal_mode = off", "synchronous = off", "cache_size = -65536"):
            self._db.execute(f"pragma {setting}")
        for side in ("source", "target"):
            columns = "offset integer primary key, digest blob, time integer, key blob, aborted integer default 0"
            self._db.execute(f"create table {side} ({columns})")

    def close(self) -> None:
        self._db.close()

    def add(self, side: str, rows: Iterable[Row], *, aborted: bool = False) -> None:
        """``aborted``: those that are not there yet are aborted."""
        columns = "offset, digest, time, key, aborted"
        insert = f"insert or ignore into {side} ({columns}) values (?, ?, ?, ?, {aborted:d})"
        try:
            self._db.execute("begin")
            self._db.executemany(insert, rows)
            self._db.execute("commit")
        except sqlite3.OperationalError as error:
            raise Refused(
                f"the records could not be kept for comparing: {error}",
                "free space in the temporary folder, or name another one (TMPDIR)",
            ) from error

    def read(self, source: Log, wanted: OffsetRange) -> None:
        self.add("source", source.rows(wanted))
        before = self._range or wanted
        self._range = OffsetRange(min(before.from_, wanted.from_), max(before.until, wanted.until))

    def read_around(self, source: Log, first: int, step: int) -> None:
        """Read the source from ``first`` on, until it has all records of the target, and ``step`` more."""
        if self._range is None or first < self._range.from_:
            self.read(source, OffsetRange(first, self._range.from_ if self._range else first))
        assert self._range is not None
        size = step
        while self._range.until < source.range.until and not self._enough(source, step):
            self.read(source, OffsetRange(self._range.until, min(source.range.until, self._range.until + size)))
            size *= 2

    def _enough(self, source: Log, step: int) -> bool:
        if self._unexplained(source):
            return False
        last = self._one(f"max(offset) from source s where {_ON_TARGET}")
        return last is not None and self.count("source", last + 1) >= step

    def _index(self) -> None:
        """Called by whoever asks: a whole log is added faster without an index."""
        for side in ("source", "target"):
            self._db.execute(f"create index if not exists {side}_digest on {side} (digest)")
        if self._compacts:
            self._db.execute("create index if not exists source_key on source (key)")

    def _one(self, query: str, **values: object) -> Any:
        row = self._db.execute(f"select {query}", values).fetchone()
        return None if row is None else row[0]

    def count(self, side: str, from_: int = 0, until: int | None = None) -> int:
        """The number of committed records there."""
        bounds = "offset >= :from_ and (:until is null or offset < :until)"
        return self._one(f"count(*) from {side} where not aborted and {bounds}", from_=from_, until=until) or 0

    def oldest(self, side: str, from_: int = 0) -> int | None:
        """The oldest timestamp of the records from this offset on; None if there are none."""
        return self._one(f"min(time) from {side} where offset >= :from_", from_=from_)  # type: ignore[no-any-return]

    def _foreign(self) -> tuple[int, int] | None:
        """The number of foreign records of the target and the offset of the first."""
        self._index()
        cut = self._range is not None and self._range.from_ <= self._removed_before
        values = {"cut": cut, "compacts": self._compacts}
        count, first = self._db.execute(f"select count(*), min(t.offset) {_FOREIGN}", values).fetchone()
        return (count, first) if count else None

    def _unexplained(self, source: Log) -> tuple[int, int] | None:
        """The same, where aborted records of the source explain none: a tool may copy these, too."""
        if (foreign := self._foreign()) and source.with_aborted and self._range:
            self.add("source", source.with_aborted(self._range), aborted=True)
            foreign = self._foreign()
        return foreign

    def check_explained(self, source: Log) -> None:
        """Raises Refused if the target has records that are not the source's."""
        if foreign := self._unexplained(source):
            raise Refused(
                f"{foreign[0]} records of the target, the first at offset {foreign[1]}, are not at the source: another"
                " writer made them, the tool changed them, or the source no longer has them",
                TO_APPEND,
            )
        if not self._one(f"1 from source s where {_ON_TARGET} limit 1"):
            raise Refused("the source no longer has any of the last records of the target", TO_APPEND)

    def next_offset(self) -> int | None:
        """The source offset behind the last record that is on the target; None if none can be told apart.

        Equal records, of one timestamp, cannot be. Behind the last one that has no equal they are counted on both
        sides: which of them are taken for copied makes no difference to any reader. A record that is not on the target
        as often was left out by the tool if the first of some later ones is there. Raises Refused if it may as well not
        have been copied yet, because what is there behind it are perhaps doubles.
        """
        self._index()
        last = self._db.execute(
            f"select s.offset, s.digest from source s where {_ON_TARGET} and not exists (select 1 from source o"
            " where o.digest = s.digest and o.offset <> s.offset) order by s.offset desc limit 1"
        ).fetchone()
        if last is None:
            return None
        end = int(last[0])
        behind = self._db.execute(
            "select offset, digest from source where offset > ? and offset <="
            f" (select max(offset) from source s where {_ON_TARGET}) order by offset",
            (end,),
        ).fetchall()
        there, passed = self._count_each("target", behind), self._count_each("source", behind, end)
        first = {digest: offset for offset, digest in reversed(behind)}
        new = (offset for digest, offset in first.items() if there[digest] and not passed[digest])
        last_new = max(new, default=-1)
        for offset, digest in behind:
            passed[digest] += 1
            if passed[digest] <= there[digest]:
                end = offset
            elif offset > last_new:
                later = {other for behind_it, other in behind if behind_it > offset}
                if any(there[other] > passed[other] for other in later):
                    raise Refused(
                        f"the last records of the target have equals at the source, around offset {offset}: which of"
                        " them were copied cannot be seen",
                        TO_APPEND,
                    )
                break
        return end + 1

    def _count_each(self, side: str, rows: Iterable[tuple[int, bytes]], until: int = 1 << 62) -> Counter[bytes]:
        """The number of records on this side, up to this offset, that are equal to each of these."""
        count = f"select count(*) from {side} where digest = ? and offset <= ?"
        return Counter({one: self._db.execute(count, (one, until)).fetchone()[0] for one in {each for _, each in rows}})

    def judged(self, end: int, target_from: int) -> CopyEnd:
        of_target = "(select digest, count(*) n from target group by digest)"
        of_source = "(select digest, count(*) n, max(aborted) aborted from source group by digest)"
        first = "select s.offset from target t join source s using (digest) order by t.offset, s.offset limit 1"
        copied = f"(select digest, count(*) n from source where not aborted and offset >= ({first}) and offset < :end"
        doubles, aborted = self._db.execute(
            f"select sum(max(0, t.n - s.n)), sum(s.aborted * t.n) from {of_target} t join {of_source} s using (digest)"
        ).fetchone()
        missing = self._one(
            f"sum(max(0, s.n - coalesce(t.n, 0))) from {copied} group by digest) s left join {of_target} t"
            " using (digest)",
            end=end,
        )
        return CopyEnd(
            next_offset=end,
            target_from=target_from,
            compared=self.count("target"),
            doubles=doubles or 0,
            missing=missing or 0,
            aborted=aborted or 0,
        )

    def runs(self, end: int, whole: bool) -> Sequence[AdoptedRun]:
        """The places of the last copies of the records before ``end``, in ascending order. Equal records are counted
        from the end on both sides: which of them is a copy of which makes no difference to any reader, if the ``whole``
        target was read. Else only records without an equal say where they lie, because a copy of another one may lie
        further back; but nobody passes as many copies as are needed of the others.
        """
        numbered = "select offset, digest, row_number() over (partition by digest order by offset desc) n"
        alone = "not exists (select 1 from source o where o.digest = s.digest and o.offset <> s.offset)"
        copies = self._db.execute(
            f"select s.offset, t.offset, alone from ({numbered}, {alone} alone from source s where offset < ?) s"
            f" left join ({numbered} from target) t using (digest, n) order by s.offset desc",
            (end,),
        )
        behind = self._db.execute("select offset from target order by offset desc")
        runs, lowest, records, passed = list[AdoptedRun](), 1 << 63, 0, 0  # records: of the target, from `lowest` on
        for at_source, at_target, is_alone in copies:
            tells = whole or is_alone
            if at_target is None and not tells:
                break  # it lies before what was read, or the tool has left it out
            if at_target is None or at_target >= lowest:
                continue  # counted as read again
            while lowest != at_target:
                lowest = next(behind)[0]
                records += 1
            if not tells:
                continue
            passed += 1
            again, next_ = records - passed, runs[-1] if runs else None
            if next_ and (at_source + 1, at_target + 1, again) == (next_.source, next_.target, next_.again):
                runs[-1] = AdoptedRun(at_source, at_target, next_.count + 1, again)
            else:
                runs.append(AdoptedRun(at_source, at_target, 1, again))
        return runs[::-1]
