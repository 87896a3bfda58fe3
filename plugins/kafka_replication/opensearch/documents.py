"""A record as a document, and back: byte for byte, because the value's own text is what is stored and returned.

The value has to be a JSON object; its fields are those of the document. One more field, ``kafka``, says where the
record came from, and has its key, headers and timestamp. Pure.

Writes documents by ``_bulk`` and judges the answer about each: an HTTP 200 may have failures inside.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic_core import from_json

from kafka_replication.copying.sink import Record
from kafka_replication.model.choices import RECORDS, Failure, FailureKind, Shape
from kafka_replication.model.errors import Fenced, NotAuthorized, NotReady, Refused, Unexpected
from kafka_replication.model.harmless import field, with_reason
from kafka_replication.model.offsets import PartitionKey, TopicPartition
from kafka_replication.opensearch.client import BLOCK, SEE, Answer, Client, path
from kafka_replication.targets import keyed
from kafka_replication.targets.keyed import NoPlace
from kafka_replication.targets.record_store import Item, Outcome, Resend

FIELD: Final = "kafka"
ABOUT: Final = "kafka_replication"  # in an index's mapping: what we say about it
ValueForm = Literal["json", "base64"]
_ENCODED_KEY: Final = "base64:"
_BEGIN: Final = f'"{FIELD}":{{'.encode()
_KEYWORD: Final = {"type": "keyword", "ignore_above": 8191}  # longer ones are kept, and not found by a search
# How the field is searched. What is not named here is kept, and not searched.
FIELDS: Final[dict[str, Any]] = {
    "dynamic": False,
    "properties": {
        "replication": _KEYWORD,
        "generation": {"type": "long"},
        "topic": _KEYWORD,
        "partition": {"type": "integer"},
        "offset": {"type": "long"},
        "timestamp": {"type": "date", "format": "epoch_millis"},
        "key": _KEYWORD,
        "tombstone": {"type": "boolean"},
        "headers": {"properties": {"name": _KEYWORD, "value": _KEYWORD}},
    },
}


def mapping(partitions: int, shape: Shape = RECORDS) -> dict[str, Any]:
    """The mapping of an index that is made for a topic of so many partitions."""
    about: dict[str, Any] = {"partitions": partitions}
    if shape != RECORDS:
        about["shape"] = shape
    return {"_meta": {ABOUT: about}, "properties": {FIELD: FIELDS}}


class NoDocument(NoPlace):
    """A record that cannot be a document, and why."""


@dataclass(frozen=True, slots=True)
class Origin(keyed.Origin):
    @classmethod
    def of(cls, key: PartitionKey, generation: int) -> Origin:
        return cls(key.replication, generation, key.source)

    def id(self, offset: int) -> str:
        """The id of a record's document. The same record has the same id, whoever writes it and however often."""
        return f"{self.source.topic}-{self.source.partition}-{offset}-{self.generation}"


class Documents:
    """Makes the documents of one origin."""

    def __init__(self, origin: Origin, form: ValueForm = "json") -> None:
        self._origin, self._form = origin, form
        about = {
            "replication": origin.replication,
            "generation": origin.generation,
            "topic": origin.source.topic,
            "partition": origin.source.partition,
        }
        self._about = _BEGIN + _dumped(about)[1:-1] + b',"offset":'

    def encoded(self, record: Record) -> bytes:
        """The document of a record: one line of JSON. Raises NoDocument."""
        offset, timestamp, key, value, headers = record
        parts = [self._about, b"%d" % offset, b',"timestamp":%d' % timestamp if timestamp >= 0 else b""]
        if key is not None:
            parts += [b",", _member("key", key)]
        if headers:
            parts += [b',"headers":[', b",".join(_header(name, content) for name, content in headers), b"]"]
        if value is None:
            parts.append(b',"tombstone":true}}')
            return b"{" + b"".join(parts)
        if self._form == "base64":
            parts += [b',"value":"', b64encode(value), b'"}}']
            return b"{" + b"".join(parts)
        text, kept = _one_line(value)
        if kept:
            parts += [b',"text":"', b64encode(value), b'"']
        return text[:-1] + (b"," if _check(text) else b"") + b"".join(parts) + b"}}"


def _about(document: bytes) -> tuple[int, dict[str, Any]]:
    """The place where our field begins, and its members."""
    begin = document.rfind(_BEGIN)  # inside of its strings a quotation mark has a backslash, so this is the field
    if begin < 0:
        raise ValueError("no field of ours")
    return begin, json.loads(document[begin + len(_BEGIN) - 1 : -1])


def read(document: bytes) -> tuple[Origin, Record]:
    """A document's origin and record. Raises ValueError, KeyError, TypeError if it is none of ours."""
    _, about = _about(document)
    source = TopicPartition(str(about["topic"]), int(about["partition"]))
    return Origin(str(about["replication"]), int(about["generation"]), source), decoded(document)


def decoded(document: bytes) -> Record:
    """The record of a document, as it was. Raises ValueError if the document is none of ours."""
    begin, about = _about(document)
    key = _bytes(about, "key") if "key" in about or "key64" in about else None
    headers = [(one["name"], _bytes(one, "value") if len(one) > 1 else None) for one in about.get("headers", ())]
    return int(about["offset"]), int(about.get("timestamp", -1)), key, _value(document, begin, about), headers or None


def _value(document: bytes, begin: int, about: dict[str, Any]) -> bytes | None:
    if about.get("tombstone"):
        return None
    for name in ("value", "text"):
        if name in about:
            return b64decode(about[name])
    fields = document[:begin]
    return (fields[:-1] if fields.endswith(b",") else fields) + b"}"


def _one_line(value: bytes) -> tuple[bytes, bool]:
    """The value's text as one line without blanks around it; True if it was another one before."""
    text = value.strip(b" \t\r\n")
    if b"\n" in text:  # only between tokens: a string has none
        text = text.replace(b"\n", b" ")
    return text, text != value


def _check(text: bytes) -> bool:
    """True if the object has members. Raises NoDocument for what is no JSON object, or has the field that is ours."""
    try:
        found = from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise NoDocument(f"its value is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise NoDocument(f"its value is JSON, but no object: {type(found).__name__}")
    if ours := next((name for name in found if name == FIELD or name.startswith(f"{FIELD}.")), None):
        raise NoDocument(f"its value has a field {field(ours)}, and [{FIELD}] is ours")
    return bool(found)


def _header(name: str, content: bytes | None) -> bytes:
    named = b'{"name":' + _dumped(name)
    return named + (b"}" if content is None else b"," + _member("value", content) + b"}")


def _member(name: str, content: bytes) -> bytes:
    """``"name":"text"``, or ``"name64":"base64"`` for bytes that are no text."""
    try:
        return b'"%s":%s' % (name.encode(), _dumped(content.decode()))
    except UnicodeDecodeError:
        return b'"%s64":"%s"' % (name.encode(), b64encode(content))


def _bytes(members: dict[str, Any], name: str) -> bytes:
    return str(members[name]).encode() if name in members else b64decode(members[f"{name}64"])


def _dumped(value: Any) -> bytes:
    return _encode(value).encode()


_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode  # made once: it is called for each record
_decoder = json.JSONDecoder()


def sources(answer: str) -> tuple[list[tuple[str, bytes]], dict[str, Any]]:
    """The id and the text of each document in the answer to a search, as it was written; and the answer without these
    texts, in which all hits are one: the beginning of the first and the end of the last. Raises ValueError.

    Within a string a quote is escaped: a name in quotes is never found in somebody's text.
    """
    found, first, last, at = list[tuple[str, bytes]](), len(answer), len(answer), 0
    while (at := answer.find('"_id":', at)) >= 0:
        id_, at = _decoder.raw_decode(answer, at + 6)
        begin = answer.index('"_source":', at) + 10
        _, last = _decoder.raw_decode(answer, begin)
        first, at = min(first, begin), last
        found.append((id_, answer[begin:at].encode()))
    return found, json.loads(f"{answer[:first]}null{answer[last:]}" if found else answer)


def id_of(key: bytes) -> str:
    """The id of a key's document: its text, or what begins with ``base64:`` and is its base64. No two keys have one."""
    try:
        text = key.decode()
    except UnicodeDecodeError:
        text = ""
    return text if text and not text.startswith(_ENCODED_KEY) else f"{_ENCODED_KEY}{b64encode(key).decode()}"


NO_INDEX: Final = "index_not_found_exception"
# What the cluster has no room or no leader for just now. It is sent again, however often.
PASSING: Final = frozenset({429, 500, 502, 503, 504})
DONE: Final = frozenset({200, 201})
CONFLICT: Final = 409
NEWER: Final = "version_conflict_engine_exception"
# Both are answered with 400, and are about all documents.
CLOSED: Final = "index_closed_exception"
NO_ROUTING: Final = "routing_missing_exception"
WAITED: Final = frozenset({BLOCK, CLOSED})  # until somebody opens the index


def item(offset: int, id_: str, version: int, document: bytes) -> Item:
    """Writes a document unless a newer session wrote it: ``version`` is the number of the session. The id has no
    character that JSON escapes, because topic names have none.
    """
    lines = _WRITE % (id_.encode(), version, document)
    return Item(offset, lines, len(lines))


_WRITE: Final = b'{"index":{"_id":"%b","version":%d,"version_type":"external_gte"}}\n%b\n'


def deletion(offset: int, id_: str, version: int) -> Item:
    """Deletes a document that an earlier session wrote and that no longer belongs there."""
    action = f'{{"delete":{{"_id":"{id_}","version":{version},"version_type":"external_gte"}}}}\n'.encode()
    return Item(offset, action, len(action))


def judged(items: Sequence[Item], answer: dict[str, Any], index: str, *, newest: bool = False) -> Outcome:
    """Pure. Raises Fenced, NotAuthorized, Refused (the index is gone), and Unexpected for an answer that has not one
    entry for each item: then nothing is known of any of them. ``newest`` as in `Bulk`.
    """
    entries = [next(iter(entry.values())) for entry in answer.get("items", ())]
    if len(entries) != len(items):
        raise Unexpected(f"{index}: {len(entries)} answers about {len(items)} documents", f"run again; {SEE}")
    again, refused, why = list[Item](), list[Failure](), ""
    for sent, entry in zip(items, entries, strict=True):
        status, error = int(entry.get("status", 0)), entry.get("error") or {}
        kind = str(error.get("type", ""))
        said = with_reason(kind, error.get("reason", ""))  # not its causes, which show the value
        if status in DONE or (status == 404 and not error):  # what was to be deleted is not there
            continue
        if kind == NEWER and newest:  # it is there, or a newer one of its key
            continue
        if status in PASSING or kind in WAITED:
            again.append(sent)
            why = f"{status} {said}"
        else:
            refused.append(_failure(sent, index, status, kind, said))
    return Outcome(tuple(again), why, tuple(refused), blocked=any(kind in why for kind in WAITED))


def _failure(sent: Item, index: str, status: int, kind: str, said: str) -> Failure:
    """The failure of one record. Raises the error that is about all of them."""
    if kind == NEWER:
        raise Fenced(
            f"{index}: the document of offset {sent.offset} is of a newer session", "run again when the other run ends"
        )
    if kind == NO_INDEX or status == 404:
        raise Refused(f"{index} on the target was deleted: {said}", "plan again")
    if kind == NO_ROUTING:
        raise Refused(f"{index} wants a routing for each document", "write to an index without _routing.required")
    if status == CONFLICT:
        raise Unexpected(f"{index}: {status} {said}", f"run again; {SEE}")
    if status in (401, 403):
        raise NotAuthorized(f"{index}: writing is refused: {said}", f"grant the right to write; {SEE}")
    return Failure(sent.offset, FailureKind.REFUSED, f"{index} refuses it: {said}", kind)


@dataclass(slots=True, kw_only=True)
class Bulk:
    """Writes documents of one index. ``newest``: versions tell how new a record is, not whose it is: a conflict is no
    error.
    """

    client: Client
    index: str
    resend: Resend
    newest: bool = False

    def write(self, items: Sequence[Item]) -> tuple[Failure, ...]:
        """Write them all. Returns the refused ones. Raises Stalled or NotReady, which name what was waited for, and the
        errors of `judged` and of the client.
        """
        return self.resend.write(self.index, items, self._once)

    def _once(self, batch: Sequence[Item]) -> Outcome:
        """One request. One that is refused as a whole is like one of whose items each is refused."""
        body = b"".join(one.request for one in batch)
        try:
            # Only statuses and errors: the rest of an answer is as long as a small document.
            answer = self.client.json("POST", path(self.index, "_bulk"), body, filter_path=_FILTER)
        except NotReady as error:
            return Outcome(tuple(batch), error.what, blocked=BLOCK in error.what)
        except Answer as answer_:
            return self._as_a_whole(batch, answer_)
        return judged(batch, answer, self.index, newest=self.newest)

    def _as_a_whole(self, batch: Sequence[Item], answer: Answer) -> Outcome:
        if answer.status == 413 and len(batch) == 1:
            what = f"{self.index} refuses it: the cluster takes no request of {batch[0].size} bytes"
            return Outcome(refused=(Failure(batch[0].offset, FailureKind.TOO_LARGE, what, "413"),))
        if answer.status in (413, 429):
            return Outcome(tuple(batch), answer.what)
        if answer.status == 404:
            raise Refused(f"{self.index} on the target was deleted: {answer.kind}", "plan again") from answer
        raise self.client.refused(answer) from answer


_FILTER: Final = "errors,items.*.status,items.*.error"
