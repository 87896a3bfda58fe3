"""The ledger in an index: for each replication one document, the head, that is replaced only if nobody else replaced it
since it was read (``if_seq_no``, ``if_primary_term``).

The head has what has to change together: the newest session of each writer, and the last transactions as a whole. So a
commit is one conditional write, and reading it by its id shows what was acknowledged (search does not). Before the tail
grows long its entries are written as documents of their own, each with its number as version: writing one again, or
late, changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Final

import xxhash

from kafka_replication.model.errors import Fenced, LedgerUnreadable, NotReady, Refused
from kafka_replication.opensearch.client import Answer, Client, path
from kafka_replication.runtime import failpoints

INDEX: Final = "kafka-replication.ledger"
FORMAT: Final = 1
MOST_IN_TAIL = 100  # entries
MOST_BYTES_IN_TAIL = 500_000
MOST_SESSIONS = 4096  # writers whose newest session the head remembers; one that it forgot counts as fenced
CONFLICTS = 100  # commits of others that one commit may meet in a row
PAGE = 1_000
MAPPING: Final = {
    "_meta": {"kafka_replication": {"ledger": FORMAT}},
    "dynamic": False,
    "properties": {
        "kind": {"type": "keyword"},
        "replication": {"type": "keyword"},
        "topic": {"type": "keyword"},
        "partition": {"type": "integer"},
        "offset": {"type": "long"},
    },
}


@dataclass(frozen=True, slots=True)
class LedgerRecord:
    """One entry as it is stored. ``value`` None deletes what the key has. Its offset is its number in the ledger of one
    replication, in the order of commits.
    """

    offset: int
    topic: str
    partition: int
    key: str
    _: KW_ONLY
    value: str | None

    @classmethod
    def of_json(cls, stored: Sequence[Any]) -> LedgerRecord:
        offset, topic, partition, key, value = stored
        return cls(offset, topic, partition, key, value=value)

    def as_json(self) -> list[Any]:
        return [self.offset, self.topic, self.partition, self.key, self.value]

    @property
    def place(self) -> tuple[str, int, str]:
        return self.topic, self.partition, self.key

    @property
    def size(self) -> int:
        return len(self.key) + len(self.value or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """``sessions`` has the newest session of each writer, ``session`` the number that was given last."""

    replication: str
    next_offset: int = 0
    session: int = 0
    sessions: dict[str, int] = field(default_factory=dict)
    tail: tuple[LedgerRecord, ...] = ()
    at: tuple[int, int] | None = None  # _seq_no and _primary_term; None: there is no head yet

    @property
    def applied(self) -> int:
        """All entries below this offset are documents of their own."""
        return self.tail[0].offset if self.tail else self.next_offset

    def fenced_by(self, writer: str) -> Head:
        """After ``writer`` began a new session, which ends all earlier ones of the same id."""
        number = self.session + 1
        sessions = {**self.sessions, writer: number}
        if len(sessions) > MOST_SESSIONS:
            del sessions[min(sessions, key=lambda name: sessions[name])]
        return replace(self, session=number, sessions=sessions)

    def with_(self, entries: Iterable[tuple[str, int, str, str | None]]) -> Head:
        """After these entries were committed together."""
        new = tuple(LedgerRecord.of_json((self.next_offset + number, *entry)) for number, entry in enumerate(entries))
        return replace(self, next_offset=self.next_offset + len(new), tail=(*self.tail, *new))

    @property
    def is_full(self) -> bool:
        return len(self.tail) > MOST_IN_TAIL or sum(record.size for record in self.tail) > MOST_BYTES_IN_TAIL

    def as_json(self) -> dict[str, Any]:
        return {
            "kind": "head",
            "format": FORMAT,
            "replication": self.replication,
            "next": self.next_offset,
            "session": self.session,
            "sessions": self.sessions,
            "tail": [record.as_json() for record in self.tail],
        }

    @classmethod
    def of(cls, source: dict[str, Any], at: tuple[int, int] | None = None) -> Head:
        """Raises LedgerUnreadable."""
        try:
            if source["format"] != FORMAT:
                raise ValueError(f"its format is {source['format']!r}")
            return cls(
                replication=str(source["replication"]),
                next_offset=int(source["next"]),
                session=int(source["session"]),
                sessions=dict(source["sessions"]),
                tail=tuple(map(LedgerRecord.of_json, source["tail"])),
                at=at,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise LedgerUnreadable(
                f"the head of a ledger in {INDEX} cannot be read: {error!r}", "upgrade, or find who changed it"
            ) from error


def writer_name(writer_id: str) -> str:
    """The short name of a writer in the head."""
    return str(xxhash.xxh3_64_hexdigest(writer_id.encode()))


def key_text(key: bytes) -> str:
    """A key as text, whatever its bytes."""
    return key.decode("utf-8", "backslashreplace")


class Journal:
    """The ledger of one replication."""

    def __init__(self, client: Client, replication: str) -> None:
        self.client, self.replication = client, replication

    def head(self) -> Head:
        """As of now. An empty one if there is none."""
        found = self.client.found("GET", path(INDEX, "_doc", f"head:{self.replication}"))
        if found is None or not found.get("found"):
            return Head(replication=self.replication)
        return Head.of(found["_source"], (found["_seq_no"], found["_primary_term"]))

    def change(self, changed: Callable[[Head], Head]) -> Head:
        """Replace the head by what ``changed`` makes of the newest one, again after each commit of somebody else.

        Raises Refused if there is no ledger. After Unreachable the outcome is unknown.
        """
        for _ in range(CONFLICTS):
            before = self.head()
            after = changed(before)
            if before.tail and after.is_full:
                self._apply(before.tail)
                after = replace(after, tail=after.tail[len(before.tail) :])
            if self._replaced(before, after):
                return after
        raise NotReady(
            f"the ledger of {self.replication} on the target changes faster than it can be written", "run again"
        )

    def _replaced(self, before: Head, after: Head) -> bool:
        id_ = f"head:{self.replication}"
        try:
            if before.at is None:
                self.client.json("PUT", path(INDEX, "_create", id_), after.as_json())
            else:
                seq_no, term = before.at
                at = {"if_seq_no": seq_no, "if_primary_term": term}
                self.client.json("PUT", path(INDEX, "_doc", id_), after.as_json(), **at)
        except Answer as answer:
            if answer.status == 409:
                return False
            if answer.status == 404:
                raise Refused(
                    f"the ledger {INDEX} does not exist on the target", "restore it, or run again"
                ) from answer
            raise self.client.refused(answer) from answer
        return True

    def _apply(self, records: Iterable[LedgerRecord]) -> None:
        """Write entries as documents of their own."""
        lines = [line for record in _newest(records) for line in (self._action(record), self._document(record))]
        answer = json.loads(self.client.text("POST", path(INDEX, "_bulk"), "".join(lines).encode()))
        statuses = [next(iter(item.values()))["status"] for item in answer["items"]]
        if 2 * len(statuses) != len(lines) or not all(status in (200, 201, 409) for status in statuses):
            raise NotReady(f"{INDEX} on the target does not take all entries: {statuses[:5]}", "run again")

    def _action(self, record: LedgerRecord) -> str:
        at = {"_id": self.entry_id(record), "version": record.offset + 1, "version_type": "external"}
        return json.dumps({"index": at}) + "\n"

    def entry_id(self, record: LedgerRecord) -> str:
        place = json.dumps([self.replication, record.topic, record.partition, record.key])
        return f"entry:{xxhash.xxh3_128_hexdigest(place.encode())}"

    def _document(self, record: LedgerRecord) -> str:
        document = {"kind": "entry", "replication": self.replication, "topic": record.topic}
        more = {"partition": record.partition, "offset": record.offset, "key": record.key, "value": record.value}
        return json.dumps({**document, **more}) + "\n"

    def newest(self, topic: str, partition: int, key: str) -> LedgerRecord | None:
        """The newest entry of this key, by reading two documents by their ids."""
        head = self.head()
        for record in reversed(head.tail):
            if record.place == (topic, partition, key):
                return record
        wanted = LedgerRecord(0, topic, partition, key, value=None)
        found = self.client.found("GET", path(INDEX, "_doc", self.entry_id(wanted)))
        return _record(found["_source"]) if found and found.get("found") else None

    def since(self, head: Head, offset: int, topics: Iterable[str]) -> Iterator[LedgerRecord]:
        """The newest entries with this offset or a higher one, those of one key in their order. Read ``head`` first:
        what is applied later is in its tail, too, or newer than it.
        """
        wanted, newer = set(topics), dict[tuple[str, int, str], int]()
        if offset < head.applied:
            for record in self._stored(head, offset, wanted):
                if record.offset >= head.applied:
                    newer[record.place] = record.offset
                yield record
        for record in head.tail:
            if record.offset >= offset and record.topic in wanted and record.offset >= newer.get(record.place, 0):
                yield record

    def _stored(self, head: Head, offset: int, topics: Iterable[str]) -> Iterator[LedgerRecord]:
        refresh(self.client)
        where = [
            {"term": {"kind": "entry"}},
            {"term": {"replication": head.replication}},
            {"terms": {"topic": sorted(topics)}},
        ]
        while True:
            query = {"bool": {"filter": [*where, {"range": {"offset": {"gte": offset}}}]}}
            found = search(self.client, {"query": query, "sort": [{"offset": "asc"}], "size": PAGE})
            yield from map(_record, found)
            if len(found) < PAGE:
                return
            offset = int(found[-1]["offset"]) + 1


def _record(source: dict[str, Any]) -> LedgerRecord:
    return LedgerRecord(source["offset"], source["topic"], source["partition"], source["key"], value=source["value"])


def _newest(records: Iterable[LedgerRecord]) -> list[LedgerRecord]:
    """Only the newest entry of each key."""
    return list({record.place: record for record in records}.values())


def refresh(client: Client, index: str = INDEX) -> None:
    """Let searches see what was acknowledged."""
    try:
        client.json("POST", path(index, "_refresh"))
    except Answer as answer:
        raise client.refused(answer) from answer


def search(client: Client, body: dict[str, Any], index: str = INDEX) -> list[dict[str, Any]]:
    """The sources of what a search finds."""
    return [dict(hit["_source"]) for hit in hits(client, body, index)]


def hits(client: Client, body: dict[str, Any], index: str = INDEX) -> list[dict[str, Any]]:
    """The hits of a search. Raises NotReady if a part of the index did not answer."""
    try:
        found = client.json("POST", path(index, "_search"), body)
    except Answer as answer:
        raise client.refused(answer) from answer
    if found.get("timed_out") or found.get("_shards", {}).get("failed"):
        raise NotReady(f"a part of {index} on the target does not answer", "check the cluster's health; run again")
    return list(found["hits"]["hits"])


def heads(client: Client) -> list[Head]:
    """The heads of all replications."""
    refresh(client)
    found = search(client, {"query": {"term": {"kind": "head"}}, "size": 10_000})
    return [Head.of(source) for source in found]


class EntryWriter:
    """A `TransactionPort`: what is sent is kept until the commit, which is one conditional write."""

    def __init__(self, journal: Journal, writer_id: str, what: str, check: Callable[[str, int], None]) -> None:
        """``check`` raises the error about a topic that lacks this partition."""
        self._journal, self._writer, self._what, self._check = journal, writer_name(writer_id), what, check
        self.session: int | None = None  # the number of this session; higher than that of every earlier one
        self._entries: list[tuple[str, int, str, str | None]] = []

    def fence(self) -> None:
        self.session = self._journal.change(lambda head: head.fenced_by(self._writer)).session

    def begin(self) -> None:
        self._entries = []

    def send(self, topic: str, partition: int, key: bytes, value: bytes | None) -> None:
        self._check(topic, partition)
        self._entries.append((topic, partition, key_text(key), None if value is None else value.decode()))

    def flush(self) -> None: ...

    def commit(self) -> None:
        assert self.session is not None, "not fenced"
        self._journal.change(self._with_entries)
        self.begin()

    def _with_entries(self, head: Head) -> Head:
        after = self._checked(head).with_(self._entries)
        failpoints.reached("P2", self._what)
        return after

    def _checked(self, head: Head) -> Head:
        if head.sessions.get(self._writer) != self.session:
            raise Fenced(f"{self._what}: a newer session took over", "run again when the other run has ended")
        return head

    def close(self) -> None:
        self.begin()
