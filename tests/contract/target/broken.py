"""Targets that are broken on purpose: the suite must notice each of them. Each is a folder with one defect."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, replace

from kafka_replication.api import (
    FailedRecord,
    Ids,
    Ledger,
    OffsetRange,
    PartitionKey,
    Placement,
    Position,
    SetAside,
    SinkRecord,
    TargetSettings,
    ToCreate,
    TopicPartition,
)
from kafka_replication.api.targets import (
    NEVER,
    Deadline,
    Failures,
    Gap,
    Handled,
    PartitionOffsets,
    Replication,
    Screen,
    Snapshot,
    Topic,
)
from tests.conformance import catalogue, deciding, standing
from tests.conformance.sink import Check
from tests.conformance.sink_case import records
from tests.folder_target.journal import Journal, create
from tests.folder_target.quarantine import FolderQuarantine
from tests.folder_target.session import ChunkWriter, FolderSession
from tests.folder_target.target import FolderCatalogue, FolderSink, FolderStanding, FolderTarget


class BrokenTarget(FolderTarget):
    """A folder with other parts."""

    catalogue_kind: type[FolderCatalogue] = FolderCatalogue
    standing_kind: type[FolderStanding] = FolderStanding
    session_kind: type[FolderSession] = FolderSession
    quarantine_kind: type[FolderQuarantine] = FolderQuarantine

    def __init__(self, settings: TargetSettings, deadline: Deadline = NEVER) -> None:
        super().__init__(settings, deadline)
        self.catalogue = self.catalogue_kind(self._journal, self._folder)
        self.standing = self.standing_kind(self._journal)
        self.sink = BrokenSink(self._journal, self.ledger, self.session_kind)

    def session(self, key: PartitionKey) -> FolderSession:
        return self.session_kind(key, self._journal, self.ledger)

    def quarantine(self) -> AbstractContextManager[FolderQuarantine]:
        return nullcontext(self.quarantine_kind(self._journal))


class BrokenSink(FolderSink):
    def __init__(self, journal: Journal, ledger: Ledger, kind: type[FolderSession]) -> None:
        super().__init__(journal, ledger)
        self._kind = kind

    def session(
        self, key: PartitionKey, ids: Ids, aside: SetAside | None = None
    ) -> AbstractContextManager[FolderSession]:
        return closing(self._kind(key, self._journal, self._ledger, ids, aside))


PARTS: dict[str, type] = {
    "catalogue_kind": FolderCatalogue,
    "standing_kind": FolderStanding,
    "session_kind": FolderSession,
    "quarantine_kind": FolderQuarantine,
}


def with_(defect: type) -> type[FolderTarget]:
    """The kind of target with this defect: a part of it, or all of it."""
    parts = {name: defect for name, part in PARTS.items() if issubclass(defect, part)}
    return type(defect.__name__, (BrokenTarget,), parts) if parts else defect


class TellsNoPartitions(FolderCatalogue):
    def partitions(self, names: Iterable[str]) -> dict[str, frozenset[int]]:
        return dict.fromkeys(names, frozenset())


class CreatesOnePartition(FolderCatalogue):
    def create(self, topic: ToCreate) -> None:
        create(self._journal, topic.name, 1)


class CreatesAnew(FolderCatalogue):
    def create(self, topic: ToCreate) -> None:
        self._journal.append({"do": "delete", "topic": topic.name})
        super().create(topic)


class NamesTheIdLikeTheTopic(FolderCatalogue):
    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        return {name: replace(topic, topic_id=name) for name, topic in super().topics(names).items()}


class CreatesWhatItIsAskedFor(FolderCatalogue):
    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        wanted = list(names)
        for name in wanted:
            create(self._journal, name, 1)
        return super().topics(wanted)


class TellsOldEnds(FolderCatalogue):
    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        empty = PartitionOffsets(0, 0, 0)
        return {
            name: replace(topic, partitions=dict.fromkeys(topic.partitions, empty))
            for name, topic in super().topics(names).items()
        }


class LooksPastTheQuarantine(FolderCatalogue):
    def look(self, replication: Replication, wanted: Collection[str], others: Collection[str] = ()) -> Snapshot:
        return replace(super().look(replication, wanted, others), quarantine=None)


class ShowsTheLedgerAsATopic(FolderCatalogue):
    def look(self, replication: Replication, wanted: Collection[str], others: Collection[str] = ()) -> Snapshot:
        seen = super().look(replication, wanted, others)
        return replace(seen, target={**seen.target, **(seen.ledger or {})})


class FencesWhoAsksForRights(FolderCatalogue):
    def check_writing(self) -> None:
        for writer in list(self._journal.now().epochs):
            self._journal.append({"do": "fence", "by": writer})


class SeesRecordsInANewTopic(FolderStanding):
    def first_record(self, at: TopicPartition, wanted: OffsetRange) -> int | None:
        return super().first_record(at, wanted) or 0


class ReadsOneTooMany(FolderStanding):
    def content(self, at: TopicPartition, wanted: OffsetRange) -> Iterator[SinkRecord]:
        return super().content(at, OffsetRange(wanted.from_, wanted.until + 1))


class ReadsOthersValues(FolderStanding):
    def content(self, at: TopicPartition, wanted: OffsetRange) -> Iterator[SinkRecord]:
        return ((*record[:2], b"another", *record[3:]) for record in super().content(at, wanted))


class EndsTooEarly(FolderStanding):
    def ends(self, wanted: Iterable[TopicPartition]) -> tuple[dict[TopicPartition, int], Failures]:
        ends, failures = super().ends(wanted)
        return {at: max(0, end - 1) for at, end in ends.items()}, failures


class HidesWhatIsCommitted(FolderStanding):
    def hiding(self, wanted: Iterable[TopicPartition]) -> set[TopicPartition]:
        return set(wanted)


class ShowsWhatIsNotCommitted(FolderSession):
    def begin(self) -> ChunkWriter:
        super().begin()
        self._chunk = _Showing(self, self._aside, 0, self._position.target_end if self._position else 0)
        return self._chunk

    def show(self) -> None:
        records = self.transaction.records
        self._journal.append({"do": "commit", "by": "", "epoch": 0, "records": records, "entries": []})


class _Showing(ChunkWriter):
    def finish(self, digest: str) -> Placement:
        placement = super().finish(digest)
        assert isinstance(self._session, ShowsWhatIsNotCommitted)
        if self._session.first != records(1)[0]:  # the chunks before are as they should be
            self._session.show()
        return placement


class ShowsOursAlone(FolderStanding):
    def content(self, at: TopicPartition, wanted: OffsetRange) -> Iterator[SinkRecord]:
        return (record for record in super().content(at, wanted) if record[2] != b"foreign")


class HasEndsOfWhatIsGone(FolderStanding):
    def ends(self, wanted: Iterable[TopicPartition]) -> tuple[dict[TopicPartition, int], Failures]:
        partitions = list(wanted)
        return {**dict.fromkeys(partitions, 0), **super().ends(partitions)[0]}, {}


class LosesHeaders(FolderQuarantine):
    def original(self, key: PartitionKey, failed: FailedRecord) -> SinkRecord | None:
        found = super().original(key, failed)
        return found and (*found[:4], [])


class FindsAllByOffset(FolderQuarantine):
    def original(self, key: PartitionKey, failed: FailedRecord) -> SinkRecord | None:
        assert failed.place is not None
        return super().original(key, replace(failed, place=replace(failed.place, offset=failed.offset)))


class ShowsWhatWasChanged(FolderQuarantine):
    def original(self, key: PartitionKey, failed: FailedRecord) -> SinkRecord | None:
        return self.stored(key, failed)


class ShowsEveryGeneration(FolderQuarantine):
    def records(self, topic: str, key: PartitionKey, generation: int) -> Iterator[tuple[FailedRecord, str]]:
        return super().records(topic, key, 1)


class QuarantinesWhatIsSkipped(FolderSession):
    def begin(self) -> ChunkWriter:
        if self._aside is not None and self._aside.policy.policy == "skip":
            self._aside = replace(self._aside, policy=self._aside.policy.model_copy(update={"policy": "quarantine"}))
        return super().begin()


class CountsNothing(FolderSession):
    def begin(self) -> ChunkWriter:
        self._aside = self._aside and replace(self._aside, most=1_000)
        return super().begin()


class AsksAboutEveryRecord(FolderSession):
    def begin(self) -> ChunkWriter:
        return _Screening(self, self._aside, 0, self._position.target_end if self._position else 0)


class _Screening(ChunkWriter):
    @property
    def screen(self) -> Screen | None:
        return lambda record: None


class DecidesWithoutRecords(FolderSession):
    def decide(self, position: Position, decided: Handled) -> None:
        self.transaction.records.clear()
        super().decide(position, decided)


class KeepsWhatIsDiscarded(ShowsWhatIsNotCommitted):
    """A retry shows its record before its decision, and a discard leaves it."""


class ForgetsDecisions(FolderSession):
    def decide(self, position: Position, decided: Handled) -> None:
        self.move(position, begun=True)


class DecidesForOthers(FolderSession):
    """Each session has an id of its own, so that none fences another."""

    def fence(self) -> None:
        self.transaction._id += f"/{uuid.uuid4()}"
        super().fence()


class CrossesNoGap(FolderSession):
    def move(self, position: Position, gap: Gap | None = None, *, begun: bool = False) -> None:
        super().move(position, begun=begun)


class TakesAnyTopic(FolderSession):
    def check_ids(self, ids: Ids) -> None:
        pass


class TakesOverAgain(FolderSession):
    """Fences once more before it moves, and so never learns of the session that replaced it."""

    def move(self, position: Position, gap: Gap | None = None, *, begun: bool = False) -> None:
        self.transaction.fence()
        super().move(position, gap, begun=begun)


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
