"""Targets that are broken on purpose: the suite must notice each of them. Each is a folder with one defect."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from kafka_replication.api import (
    FailedRecord,
    Failure,
    Ids,
    OffsetRange,
    PartitionKey,
    Position,
    SetAside,
    SinkRecord,
    ToCreate,
    TopicPartition,
    TransactionPort,
)
from kafka_replication.api.targets import (
    Entry,
    Failures,
    Gap,
    Handled,
    IdempotentSession,
    Item,
    PartitionOffsets,
    Replication,
    Resend,
    Screen,
    Snapshot,
    StoredCatalogue,
    StoredQuarantine,
    StoredSink,
    StoredStanding,
    Topic,
)
from kafka_replication.model.offsets import Coverage
from kafka_replication.targets.idempotent import ChunkWriter
from kafka_replication.targets.journal_ledger import EntryWriter, JournalLedger
from tests.conformance import catalogue, deciding, standing
from tests.conformance.sink import Check
from tests.folder_target.target import FolderRecords, FolderStore, FolderTarget


class BrokenStore(FolderStore):
    records_kind: ClassVar[type[FolderRecords]] = FolderRecords

    def records(self, key: PartitionKey, position: Position | None) -> FolderRecords:
        return self.records_kind(key, position, self.journal)


class BrokenSink(StoredSink):
    """With what the failure policy of a session is changed to."""

    def changed(self, aside: SetAside) -> SetAside:
        return aside

    def opened(self, key: PartitionKey, ids: Ids | None = None, aside: SetAside | None = None) -> IdempotentSession:
        return super().opened(key, ids, aside and self.changed(aside))


class BrokenTarget(FolderTarget):
    """A folder with other parts."""

    ledger_kind: type[JournalLedger] = JournalLedger
    catalogue_kind: type[StoredCatalogue] = StoredCatalogue
    standing_kind: type[StoredStanding] = StoredStanding
    sink_kind: type[StoredSink] = StoredSink
    quarantine_kind: type[StoredQuarantine] = StoredQuarantine

    @cached_property
    def ledger(self) -> JournalLedger:
        return self.ledger_kind(self.store)

    @cached_property
    def standing(self) -> StoredStanding:
        return self.standing_kind(self.store, self.ledger)

    @cached_property
    def catalogue(self) -> StoredCatalogue:
        return self.catalogue_kind(self.store, self.ledger, self.standing)

    @cached_property
    def sink(self) -> StoredSink:
        return self.sink_kind(self.store, self.ledger)

    def quarantine(self) -> AbstractContextManager[StoredQuarantine]:
        return nullcontext(self.quarantine_kind(self.store))


PARTS: dict[str, type] = {
    "ledger_kind": JournalLedger,
    "catalogue_kind": StoredCatalogue,
    "standing_kind": StoredStanding,
    "sink_kind": StoredSink,
    "quarantine_kind": StoredQuarantine,
    "store_kind": FolderStore,
}


def with_(defect: type) -> type[FolderTarget]:
    """The kind of target with this defect: a part of it, or all of it."""
    if issubclass(defect, FolderTarget):
        return defect
    if issubclass(defect, FolderRecords):
        defect = type(defect.__name__, (BrokenStore,), {"records_kind": defect})
    elif issubclass(defect, IdempotentSession):
        defect = type(defect.__name__, (StoredSink,), {"session_kind": defect})
    [part] = [name for name, kind in PARTS.items() if issubclass(defect, kind)]
    return type(defect.__name__, (BrokenTarget,), {part: defect})


class TellsNoPartitions(StoredCatalogue):
    def partitions(self, names: Iterable[str]) -> dict[str, frozenset[int]]:
        return dict.fromkeys(names, frozenset())


class CreatesOnePartition(FolderStore):
    def create(self, topic: ToCreate) -> None:
        super().create(replace(topic, partitions=1))


class CreatesAnew(FolderStore):
    def create(self, topic: ToCreate) -> None:
        self.journal.write((("topic", topic.name), 0, None))
        super().create(topic)


class NamesTheIdLikeTheTopic(StoredCatalogue):
    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        return {name: replace(topic, topic_id=name) for name, topic in super().topics(names).items()}


class CreatesWhatItIsAskedFor(StoredCatalogue):
    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        wanted = list(names)
        for name in wanted:
            self.create(ToCreate(name=name, partitions=1))
        return super().topics(wanted)


class TellsOldEnds(StoredCatalogue):
    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        empty = PartitionOffsets(0, 0, 0)
        return {
            name: replace(topic, partitions=dict.fromkeys(topic.partitions, empty))
            for name, topic in super().topics(names).items()
        }


class LooksPastTheQuarantine(StoredCatalogue):
    def look(self, replication: Replication, wanted: Collection[str], others: Collection[str] = ()) -> Snapshot:
        return replace(super().look(replication, wanted, others), quarantine=None)


class ShowsTheLedgerAsATopic(StoredCatalogue):
    def look(self, replication: Replication, wanted: Collection[str], others: Collection[str] = ()) -> Snapshot:
        seen = super().look(replication, wanted, others)
        return replace(seen, target={**seen.target, **(seen.ledger or {})})


class FencesWhoAsksForRights(FolderStore):
    def check_writing(self) -> None:
        head = self.head()
        self.replace(head, replace(head, sessions={}))


class SeesRecordsInANewTopic(StoredStanding):
    def first_record(self, at: TopicPartition, wanted: OffsetRange) -> int | None:
        return super().first_record(at, wanted) or 0


class ReadsOneTooMany(FolderRecords):
    def scan(self, ranges: Iterable[OffsetRange]) -> Iterator[tuple[SinkRecord, bool]]:
        return super().scan([OffsetRange(one.from_, one.until + 1) for one in ranges])


class ReadsOthersValues(FolderRecords):
    def scan(self, ranges: Iterable[OffsetRange]) -> Iterator[tuple[SinkRecord, bool]]:
        return (((*record[:3], b"another", record[4]), there) for record, there in super().scan(ranges))


class EndsTooEarly(StoredStanding):
    def ends(self, wanted: Iterable[TopicPartition]) -> tuple[dict[TopicPartition, int], Failures]:
        ends, failures = super().ends(wanted)
        return {at: max(0, end - 1) for at, end in ends.items()}, failures


class HidesWhatIsCommitted(StoredStanding):
    def hiding(self, wanted: Iterable[TopicPartition]) -> set[TopicPartition]:
        return set(wanted)


class ShowsWhatIsNotCommitted(FolderRecords):
    @property
    def coverage(self) -> Coverage:
        return Coverage((OffsetRange(0, 1_000),))

    @coverage.setter
    def coverage(self, committed: Coverage) -> None:
        """It is forgotten."""


class ShowsOursAlone(FolderRecords):
    def others(self, written: OffsetRange | None = None) -> Iterator[SinkRecord]:
        return iter(())


class HasEndsOfWhatIsGone(StoredStanding):
    def ends(self, wanted: Iterable[TopicPartition]) -> tuple[dict[TopicPartition, int], Failures]:
        partitions = list(wanted)
        return {**dict.fromkeys(partitions, 0), **super().ends(partitions)[0]}, {}


class LosesHeaders(StoredQuarantine):
    def original(self, key: PartitionKey, failed: FailedRecord) -> SinkRecord | None:
        found = super().original(key, failed)
        return found and (*found[:4], [])


class FindsAllByOffset(StoredQuarantine):
    def original(self, key: PartitionKey, failed: FailedRecord) -> SinkRecord | None:
        assert failed.place is not None
        return super().original(key, replace(failed, place=replace(failed.place, offset=failed.offset)))


class ShowsWhatWasChanged(StoredQuarantine):
    def original(self, key: PartitionKey, failed: FailedRecord) -> SinkRecord | None:
        return self.stored(key, failed)


class ShowsEveryGeneration(StoredQuarantine):
    def records(self, topic: str, key: PartitionKey, generation: int) -> Iterator[tuple[FailedRecord, str]]:
        return super().records(topic, key, 1)


class QuarantinesWhatIsSkipped(BrokenSink):
    def changed(self, aside: SetAside) -> SetAside:
        return replace(aside, policy=aside.policy.model_copy(update={"policy": "quarantine"}))


class CountsNothing(BrokenSink):
    def changed(self, aside: SetAside) -> SetAside:
        return replace(aside, most=1_000)


class AsksAboutEveryRecord(IdempotentSession):
    def begin(self) -> ChunkWriter:
        super().begin()
        return _Screening(self, self._aside, 0)


class _Screening(ChunkWriter):
    @property
    def screen(self) -> Screen | None:
        return lambda record: None


class DecidesWithoutRecords(FolderRecords):
    """A record alone, as that of a retry, is not written."""

    def write(self, items: Sequence[Item], resend: Resend) -> tuple[Failure, ...]:
        return super().write(items, resend) if len(items) > 1 else ()


class KeepsWhatIsDiscarded(IdempotentSession):
    """A discard leaves what a retry has written that died before its decision."""

    def drop_uncommitted(self, offsets: Coverage) -> None:
        pass


class ForgetsDecisions(JournalLedger):
    def write(self, transaction: TransactionPort, key: PartitionKey, entry: Entry) -> None:
        if not isinstance(entry, Handled):
            super().write(transaction, key, entry)


class DecidesForOthers(StoredSink):
    """Each session has an id of its own, so that none fences another."""

    def writer(self, writer_id: str, what: str) -> EntryWriter:
        return super().writer(f"{writer_id}/{uuid.uuid4()}", what)


class CrossesNoGap(JournalLedger):
    def write(self, transaction: TransactionPort, key: PartitionKey, entry: Entry) -> None:
        if not isinstance(entry, Gap):
            super().write(transaction, key, entry)


class TakesAnyTopic(IdempotentSession):
    def check_ids(self, ids: Ids) -> None:
        pass


class TakesOverAgain(StoredSink):
    """Fences once more before it commits, and so never learns of the session that replaced it."""

    def writer(self, writer_id: str, what: str) -> EntryWriter:
        return _Fencing(self._ledger.journal, writer_id, what, lambda topic, partition: None)


class _Fencing(EntryWriter):
    def commit(self) -> None:
        self.fence()
        super().commit()


class EndsNoSession(FolderTarget):
    def end_sessions(self, ids: Mapping[str, str], check: Callable[[], None]) -> None:
        for _ in ids:
            check()


class EndsBeforeItAsks(FolderTarget):
    def end_sessions(self, ids: Mapping[str, str], check: Callable[[], None]) -> None:
        super().end_sessions(ids, lambda: None)
        for _ in ids:
            check()


class EndsTheFirstAlone(FolderTarget):
    def end_sessions(self, ids: Mapping[str, str], check: Callable[[], None]) -> None:
        super().end_sessions(dict(list(ids.items())[:1]), check)


class AsksNobody(FolderTarget):
    def end_sessions(self, ids: Mapping[str, str], check: Callable[[], None]) -> None:
        super().end_sessions(ids, lambda: None)


@dataclass(frozen=True)
class Broken:
    """A broken target and the check that notices it."""

    defect: type
    noticed_by: Check


ALL = [
    Broken(TellsNoPartitions, catalogue.a_created_topic_is_described_and_empty),
    Broken(CreatesOnePartition, catalogue.a_created_topic_is_described_and_empty),
    Broken(CreatesAnew, catalogue.what_is_there_stays_when_a_topic_is_created_again_or_grows),
    Broken(TellsOldEnds, catalogue.what_is_there_stays_when_a_topic_is_created_again_or_grows),
    Broken(NamesTheIdLikeTheTopic, catalogue.a_topic_that_is_gone_is_left_out_and_has_another_id_later),
    Broken(CreatesWhatItIsAskedFor, catalogue.a_topic_that_is_gone_is_left_out_and_has_another_id_later),
    Broken(LooksPastTheQuarantine, catalogue.a_look_tells_topics_from_the_ledger_and_the_quarantine),
    Broken(ShowsTheLedgerAsATopic, catalogue.a_look_tells_topics_from_the_ledger_and_the_quarantine),
    Broken(FencesWhoAsksForRights, catalogue.asking_for_rights_creates_nothing_and_fences_nobody),
    Broken(SeesRecordsInANewTopic, standing.in_a_new_topic_is_nothing),
    Broken(ReadsOneTooMany, standing.committed_records_are_shown_at_their_places_with_their_digests),
    Broken(ReadsOthersValues, standing.committed_records_are_shown_at_their_places_with_their_digests),
    Broken(EndsTooEarly, standing.the_end_is_behind_our_last_record_and_nothing_is_hidden),
    Broken(HidesWhatIsCommitted, standing.the_end_is_behind_our_last_record_and_nothing_is_hidden),
    Broken(ShowsWhatIsNotCommitted, standing.what_is_not_committed_is_not_shown),
    Broken(ShowsOursAlone, standing.records_of_others_are_shown_behind_ours),
    Broken(HasEndsOfWhatIsGone, standing.a_topic_that_is_gone_has_no_end),
    Broken(LosesHeaders, deciding.a_quarantined_record_is_kept_as_it_was),
    Broken(FindsAllByOffset, deciding.a_quarantined_record_is_kept_as_it_was),
    Broken(ShowsWhatWasChanged, deciding.a_quarantined_record_is_kept_as_it_was),
    Broken(ShowsEveryGeneration, deciding.a_quarantined_record_is_kept_as_it_was),
    Broken(QuarantinesWhatIsSkipped, deciding.a_skipped_record_is_nowhere),
    Broken(CountsNothing, deciding.no_more_is_set_aside_than_allowed),
    Broken(AsksAboutEveryRecord, deciding.no_more_is_set_aside_than_allowed),
    Broken(DecidesWithoutRecords, deciding.a_decision_and_its_records_are_there_together),
    Broken(KeepsWhatIsDiscarded, deciding.what_is_discarded_is_not_there_after_a_retry_that_died),
    Broken(ForgetsDecisions, deciding.a_decision_and_its_records_are_there_together),
    Broken(DecidesForOthers, deciding.a_session_that_was_replaced_decides_nothing),
    Broken(CrossesNoGap, deciding.a_session_of_entries_moves_the_position_and_crosses_a_gap),
    Broken(TakesAnyTopic, deciding.a_session_of_entries_moves_the_position_and_crosses_a_gap),
    Broken(TakesOverAgain, deciding.a_session_of_entries_that_was_replaced_moves_nothing),
    Broken(EndsNoSession, deciding.ended_sessions_commit_nothing),
    Broken(EndsBeforeItAsks, deciding.ended_writers_commit_nothing_and_those_before_which_a_check_fails_go_on),
    Broken(EndsTheFirstAlone, deciding.ended_writers_commit_nothing_and_those_before_which_a_check_fails_go_on),
    Broken(AsksNobody, deciding.ended_sessions_commit_nothing),
]
