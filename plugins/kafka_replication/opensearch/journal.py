"""The ledger in an index. Each head is a document that is replaced by a conditional write (``if_seq_no``,
``if_primary_term``) and read by its id, which shows what was acknowledged (search does not). Other entries are
documents whose version is their number.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import xxhash

from kafka_replication.model.errors import NotReady, Refused, ReplicationError
from kafka_replication.opensearch.client import Answer, Client, path
from kafka_replication.opensearch.searches import Query, all_hits, hits, refresh
from kafka_replication.targets.journal import FORMAT, LEDGER_PLACE, Head, JournalStorage, LedgerRecord

INDEX: Final = LEDGER_PLACE
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
_NO_NEWER: Final = {"version_type": "external_gte"}  # deletes no entry with a higher version
BLOCKS = frozenset(f"index.blocks.{name}" for name in ("read_only", "read_only_allow_delete", "write"))


class IndexShelf(JournalStorage):
    def __init__(self, client: Client, replication: str) -> None:
        self.client, self.replication = client, replication

    def ledger_exists(self) -> bool:
        found = self.client.found(path(INDEX, "_mapping"))
        if found is None:
            return False
        about = next(iter(found.values()))["mappings"].get("_meta", {}).get("kafka_replication", {})
        if about.get("ledger") != FORMAT:
            raise Refused(
                f"the index {INDEX} on the target is no ledger of this version: its mapping says {about or 'nothing'}",
                "delete it if nobody needs it, or upgrade this installation",
            )
        return True

    def create_ledger(self) -> None:
        index = {"number_of_shards": 1, "translog.durability": "request"}
        try:
            self.client.json("PUT", path(INDEX), {"settings": {"index": index}, "mappings": MAPPING})
        except Answer as answer:
            if answer.kind != "resource_already_exists_exception":
                raise self.client.refused(answer) from answer

    def obstacle(self) -> ReplicationError | None:
        found = self.client.found(path(INDEX, "_settings"), flat_settings=True)
        settings = next(iter(found.values()))["settings"] if found else {}
        blocks = sorted(name for name, value in settings.items() if name in BLOCKS and value == "true")
        if not blocks:
            return None
        return NotReady(
            f"the ledger {INDEX} on the target cannot be written: {', '.join(blocks)}",
            "free disk space if its node has none left, then remove the block; the next run goes on",
        )

    def head(self) -> Head:
        found = self.client.found(path(INDEX, "_doc", f"head:{self.replication}"))
        if found is None or not found.get("found"):
            return Head(replication=self.replication)
        return Head.of(found["_source"], (found["_seq_no"], found["_primary_term"]))

    def heads(self) -> list[Head]:
        refresh(self.client, INDEX)
        found = hits(self.client, {"query": {"term": {"kind": "head"}}, "size": 10_000}, INDEX)
        return [Head.of(dict(hit["_source"])) for hit in found]

    def replace(self, before: Head, after: Head) -> bool:
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

    def store(self, records: Sequence[LedgerRecord]) -> None:
        lines = list[str]()
        for record in records:
            place = {"_id": self._id(record.place), "version": record.offset + 1, "version_type": "external"}
            lines += [json.dumps({"index": place}) + "\n", self._document(record)]
        statuses = self._statuses(lines)
        if 2 * len(statuses) != len(lines) or not all(status in (200, 201, 409) for status in statuses):
            raise NotReady(f"{INDEX} on the target does not take all entries: {statuses[:5]}", "run again")

    def remove(self, records: Sequence[LedgerRecord]) -> None:
        lines = [
            json.dumps({"delete": {"_id": self._id(record.place), "version": record.offset + 1, **_NO_NEWER}}) + "\n"
            for record in records
        ]
        statuses = self._statuses(lines)
        if len(statuses) != len(lines) or not all(status in (200, 404, 409) for status in statuses):
            raise NotReady(f"{INDEX} on the target does not delete all entries: {statuses[:5]}", "run again")

    def _statuses(self, lines: Sequence[str]) -> list[int]:
        answer = self.client.asked("POST", path(INDEX, "_bulk"), "".join(lines).encode())
        return [int(next(iter(item.values()))["status"]) for item in answer.get("items", ())]

    def _id(self, place: tuple[str, int, str]) -> str:
        return f"entry:{xxhash.xxh3_128_hexdigest(json.dumps([self.replication, *place]).encode())}"

    def _document(self, record: LedgerRecord) -> str:
        document = {"kind": "entry", "replication": self.replication, "topic": record.topic}
        more = {"partition": record.partition, "offset": record.offset, "key": record.key, "value": record.value}
        return json.dumps({**document, **more}) + "\n"

    def stored(self, place: tuple[str, int, str]) -> LedgerRecord | None:
        found = self.client.found(path(INDEX, "_doc", self._id(place)))
        return _record(found["_source"]) if found and found.get("found") else None

    def stored_since(self, replication: str, offset: int, topics: Iterable[str]) -> Iterator[LedgerRecord]:
        refresh(self.client, INDEX)
        where: list[Query] = [
            {"term": {"kind": "entry"}},
            {"term": {"replication": replication}},
            {"terms": {"topic": sorted(topics)}},
        ]
        yield from (_record(hit["_source"]) for hit in all_hits(self.client, INDEX, where, "offset", offset - 1))


def _record(source: dict[str, Any]) -> LedgerRecord:
    return LedgerRecord(source["offset"], source["topic"], source["partition"], source["key"], value=source["value"])
