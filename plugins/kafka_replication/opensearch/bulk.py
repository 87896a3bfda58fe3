"""Writes documents by ``_bulk`` and judges the answer about each: an HTTP 200 may have failures inside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from kafka_replication.model.errors import Fenced, NotAuthorized, NotReady, Refused, Unexpected
from kafka_replication.model.failures import Failure, FailureKind
from kafka_replication.model.harmless import with_reason
from kafka_replication.opensearch.client import BLOCK, SEE, Answer, Client, path
from kafka_replication.targets.record_store import Item
from kafka_replication.targets.resend import Outcome, Resend

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


def judged(items: Sequence[Item], answer: dict[str, Any], index: str, *, newest: bool = False) -> Outcome[Item]:
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

    def _once(self, batch: Sequence[Item]) -> Outcome[Item]:
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

    def _as_a_whole(self, batch: Sequence[Item], answer: Answer) -> Outcome[Item]:
        if answer.status == 413 and len(batch) == 1:
            what = f"{self.index} refuses it: the cluster takes no request of {batch[0].size} bytes"
            return Outcome(refused=(Failure(batch[0].offset, FailureKind.TOO_LARGE, what, "413"),))
        if answer.status in (413, 429):
            return Outcome(tuple(batch), answer.what)
        if answer.status == 404:
            raise Refused(f"{self.index} on the target was deleted: {answer.kind}", "plan again") from answer
        raise self.client.refused(answer) from answer


_FILTER: Final = "errors,items.*.status,items.*.error"
