"""ListOffsets, and waiting until no transaction below an offset is open. Threads of a worker that ask at the same time
share requests: no answer is older than its question.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass

import tenacity
from confluent_kafka import IsolationLevel, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo, OffsetSpec  # type: ignore[attr-defined]  # re-exported without saying so

from kafka_replication.kafka.brokers import MOST, named, wait_log
from kafka_replication.kafka.callbacks import answer_of
from kafka_replication.kafka.clients import raise_if_shut_out
from kafka_replication.kafka.connect_diagnosis import Asked, translate
from kafka_replication.kafka.consumer_pool import OfEachAdmin, SharedRead
from kafka_replication.model.errors import NotReady, ReplicationError, Stalled
from kafka_replication.model.offsets import OffsetRange, TopicPartition, readable
from kafka_replication.model.rights import Operation
from kafka_replication.model.times import from_millis, to_text
from kafka_replication.model.trouble import Trouble
from kafka_replication.planning.snapshot import PartitionOffsets
from kafka_replication.runtime import stopping
from kafka_replication.runtime.deadline import StallClock

_EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]

# A partition that was just created, or whose leader just moved, returns these errors for a moment.
_PASSING = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError._NOENT,
        KafkaError._NO_OFFSET,
    }
)
# The answer of Kafka 4.3 to a search for a time that ends at a damaged compressed batch (measured).
_CANNOT_DECODE = frozenset({KafkaError.UNKNOWN, KafkaError.INVALID_RECORD, KafkaError.INVALID_MSG})

# Seconds; each further request may take twice as long. As long as librdkafka 2.16 takes a broker that is down for a
# leader, a request keeps a processor busy until its end. The next one comes after new metadata, and fails at once.
FIRST_REQUEST = 2.0
SHORTEST_PAUSE = 0.1  # before the second question; then it doubles
Partitions = Iterable[TopicPartition]
Offsets = dict[TopicPartition, int]
End = tuple[int, int | None]  # the end of a partition, and the leader epoch if it is known
Answers = dict[TopicPartition, ListOffsetsResultInfo]
Failures = dict[TopicPartition, ReplicationError]  # the reason why a partition gave no answer
Each = tuple[Offsets, Failures]


@dataclass(frozen=True, slots=True)
class Patience:
    """The longest time of one request, and of a silence in which no partition without a leader answers; in seconds.

    The first requests take less, see `FIRST_REQUEST`.
    """

    request: float = 30.0
    leader: float = 15.0

    @classmethod
    def within(cls, seconds: float) -> Patience:
        """The patience of a step that should end after about ``seconds`` although some partitions do not answer."""
        return cls(seconds / 3, seconds / 2)


_USUAL = Patience()
_AT_ONCE = Patience(FIRST_REQUEST, 0.0)


def _ask(
    admin: AdminClient, partitions: Partitions, spec: OffsetSpec, *, committed: bool, patience: Patience = _USUAL
) -> Answers:
    """ListOffsets of all ``partitions``. Raises an error naming the first partition that does not answer."""
    answers, failures = _ask_each(admin, partitions, spec, committed=committed, patience=patience, all_or_none=True)
    _raise_first(failures)
    return answers


def _raise_first(failures: Failures) -> None:
    """Raise the first error. Errors for which a retry cannot help come first."""
    if failures:
        _, error = min(failures.items(), key=lambda item: (item[1].retriable, item[0]))
        others = f" (and {len(failures) - 1} more partitions do not answer)" if len(failures) > 1 else ""
        raise type(error)(error.what + others, error.remedy) from error.__cause__


def _ask_each(
    admin: AdminClient,
    partitions: Partitions,
    spec: OffsetSpec,
    *,
    committed: bool,
    patience: Patience,
    all_or_none: bool = False,
) -> tuple[Answers, Failures]:
    """ListOffsets of each partition, or its error. Partitions that may answer soon are asked again, unless the caller
    needs ``all_or_none`` and another partition will never answer.
    """
    answers, failures = Answers(), Failures()
    unanswered, seconds = set(partitions), min(FIRST_REQUEST, patience.request)
    silence = StallClock(patience.leader)

    def ask() -> bool:
        nonlocal seconds
        failed = _ask_once(admin, unanswered, spec, answers, committed=committed, timeout=seconds)
        if failed:
            raise_if_shut_out(admin)
        failures.update({partition: _why(admin, partition, e) for partition, e in failed.items()})
        again = _PASSING if seconds >= patience.request else _PASSING | {KafkaError._TIMED_OUT}
        unanswered.intersection_update(partition for partition, e in failed.items() if e.args[0].code() in again)
        seconds = min(2 * seconds, patience.request)
        if all_or_none and len(unanswered) < len(failed):
            return False
        topics = {partition.topic for partition in unanswered}
        if topics:  # or the client keeps stale leaders for 15 minutes; one request for all topics, not one for each
            with suppress(KafkaException):
                admin.list_topics(None if len(topics) > 1 else next(iter(topics)), timeout=5)
        return bool(unanswered)

    # Nearly always all answer at once, and then a loop would cost more than the question.
    if ask() and not silence.is_over(len(unanswered)):
        time.sleep(SHORTEST_PAUSE)
        tenacity.Retrying(
            retry=tenacity.retry_if_result(bool),
            stop=lambda _: silence.is_over(len(unanswered)),
            wait=tenacity.wait_exponential(multiplier=2 * SHORTEST_PAUSE, max=2.0),
            retry_error_callback=lambda _: None,
        )(ask)
    return answers, {partition: error for partition, error in failures.items() if partition not in answers}


def _ask_once(
    admin: AdminClient,
    partitions: Collection[TopicPartition],
    spec: OffsetSpec,
    answers: Answers,
    *,
    committed: bool,
    timeout: float,
) -> dict[TopicPartition, KafkaException]:
    """Add the answers to ``answers``. Returns the errors of the other partitions."""
    failed: dict[TopicPartition, KafkaException] = {}
    if not partitions:
        return failed
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    asked = {ClientPartition(partition.topic, partition.partition): spec for partition in sorted(partitions)}
    try:
        futures = admin.list_offsets(asked, isolation_level=level, request_timeout=timeout)
    except SystemError as e:
        stopping.raise_again(e)
        raise
    for client_partition, future in futures.items():
        partition = TopicPartition(client_partition.topic, client_partition.partition)
        try:
            answers[partition] = answer_of(future, timeout + 30)
        except KafkaException as e:
            failed[partition] = e
    return failed


def _why(admin: AdminClient, partition: TopicPartition, raised: KafkaException) -> ReplicationError:
    error = raised.args[0]
    if error.code() in (KafkaError.LEADER_NOT_AVAILABLE, KafkaError._NOENT):  # _NOENT: no partition asked has one
        reason: ReplicationError = NotReady(
            f"{partition} has no leader: no broker that has its records is up",
            f"start the brokers that hold it: kafka-topics.sh --describe --topic {partition.topic}",
        )
    else:
        reason = translate(
            error, f"listing offsets of {partition}", Asked.of(admin, topic=(Operation.READ, partition.topic))
        )
    reason.__cause__ = raised
    return reason


def _list(admin: AdminClient, partitions: Partitions, spec: OffsetSpec, *, committed: bool) -> Offsets:
    return {at: answer.offset for at, answer in _ask(admin, partitions, spec, committed=committed).items()}


def leader_epoch(admin: AdminClient, partition: TopicPartition) -> int | None:
    """The current leader epoch of the partition, or None if the broker does not return it."""
    return _epoch_of(_ask(admin, [partition], _LATEST, committed=False)[partition])


def _epoch_of(answer: ListOffsetsResultInfo) -> int | None:
    epoch = answer.leader_epoch
    return epoch if epoch is not None and epoch >= 0 else None


def ends_now(admin: AdminClient, partitions: Partitions) -> dict[TopicPartition, End]:
    """The high watermarks of those partitions that answer at once, each with the leader epoch if it is known."""
    answers, _ = _ask_each(admin, partitions, _LATEST, committed=False, patience=_AT_ONCE)
    return {partition: (answer.offset, _epoch_of(answer)) for partition, answer in answers.items()}


def log_starts(admin: AdminClient, partitions: Partitions) -> Offsets:
    return _list(admin, partitions, _EARLIEST, committed=False)


def high_watermarks(admin: AdminClient, partitions: Partitions) -> Offsets:
    return _list(admin, partitions, _LATEST, committed=False)


def last_stable(admin: AdminClient, partitions: Partitions) -> Offsets:
    return _list(admin, partitions, _LATEST, committed=True)


def at_time(admin: AdminClient, partitions: Partitions, timestamp: int) -> Offsets:
    """The first offset whose timestamp is >= ``timestamp`` (ms); without one, the partition's last stable offset."""
    resolved, failures = at_time_each(admin, partitions, timestamp)
    _raise_first(failures)
    return resolved


def at_time_each(admin: AdminClient, partitions: Partitions, timestamp: int, patience: Patience = _USUAL) -> Each:
    """The same as `at_time`, with the error of each partition that does not answer."""
    first, failures = _list_each(
        admin, partitions, OffsetSpec.for_timestamp(timestamp), committed=True, patience=patience
    )
    failures = {partition: _not_searched(partition, error, timestamp) for partition, error in failures.items()}
    without = [partition for partition, offset in first.items() if offset < 0]
    ends, failed = last_stable_each(admin, without, patience)
    resolved = {
        partition: ends.get(partition, offset) for partition, offset in first.items() if partition not in failed
    }
    return resolved, failures | failed


def _not_searched(partition: TopicPartition, error: ReplicationError, timestamp: int) -> ReplicationError:
    """The error of a search for a time; named if the broker could not decode the batch where the search ended."""
    raised = error.__cause__
    if not isinstance(raised, KafkaException) or raised.args[0].code() not in _CANNOT_DECODE:
        return error
    named = NotReady(
        f"{partition}: its broker cannot find the first record from {to_text(from_millis(timestamp))} on"
        f" ({raised.args[0].name()}); most likely the batch there is damaged on its disk",
        "name an offset, or another time; or repair the broker's log, or let a good replica lead",
    )
    named.__cause__ = raised
    return named


def log_starts_each(admin: AdminClient, partitions: Partitions, patience: Patience = _USUAL) -> Each:
    return _list_each(admin, partitions, _EARLIEST, committed=False, patience=patience)


def last_stable_each(admin: AdminClient, partitions: Partitions, patience: Patience = _USUAL) -> Each:
    return _list_each(admin, partitions, _LATEST, committed=True, patience=patience)


def _list_each(
    admin: AdminClient, partitions: Partitions, spec: OffsetSpec, *, committed: bool, patience: Patience = _USUAL
) -> Each:
    answers, failures = _ask_each(admin, partitions, spec, committed=committed, patience=patience)
    return {at: answer.offset for at, answer in answers.items()}, failures


def readable_log(admin: AdminClient, at: TopicPartition) -> OffsetRange:
    """The offsets that a ``read_committed`` reader can read of the partition."""
    end = last_stable(admin, [at])[at]
    return readable(log_starts(admin, [at])[at], end)


def readable_logs(admin: AdminClient, partitions: Partitions, patience: Patience) -> dict[TopicPartition, OffsetRange]:
    """As `readable_log`, without the partitions that do not answer."""
    ends, _ = last_stable_each(admin, partitions, patience)
    starts, _ = log_starts_each(admin, ends, patience)
    return {at: readable(start, ends[at]) for at, start in starts.items()}


def all_three(
    admin: AdminClient, partitions: Partitions, patience: Patience = _USUAL
) -> dict[TopicPartition, PartitionOffsets | Trouble]:
    """The three offsets of each partition, or why they are not known. After a failure it is not asked again."""
    starts, failures = log_starts_each(admin, partitions, patience)
    high, failed = _ask_each(admin, starts, _LATEST, committed=False, patience=patience)
    stable, also_failed = last_stable_each(admin, high, patience)
    answered = {
        partition: PartitionOffsets(
            starts[partition], max(high[partition].offset, end), end, _epoch_of(high[partition])
        )
        for partition, end in stable.items()
    }
    problems = {partition: Trouble.of(error) for partition, error in (failures | failed | also_failed).items()}
    return {**answered, **problems}


def shown_logs(admin: AdminClient, partitions: Partitions) -> dict[TopicPartition, End]:
    """As `stable_ends`, of those partitions that answer at once, and in which nothing is hidden now. Each end with the
    leader epoch of who named it, if it is known.
    """
    answers, _ = _ask_each(admin, partitions, _LATEST, committed=False, patience=_AT_ONCE)
    stable, _ = last_stable_each(admin, answers, _AT_ONCE)
    return {
        partition: (answer.offset, _epoch_of(answer))
        for partition, answer in answers.items()
        if stable.get(partition, -1) >= answer.offset
    }


def stable_ends(
    admin: AdminClient,
    partitions: Partitions,
    deadline: float,
    hidden: Callable[[Collection[TopicPartition]], None] = lambda waiting: None,
) -> Offsets:
    """Each partition's high watermark, once every transaction below it is committed or aborted.

    An open transaction hides records that were committed after it began. It ends at its time-out at the latest.
    The pauses grow from 0.02 s to 0.5 s, because the wait may take minutes on overloaded brokers. Before it waits, it
    calls ``hidden`` with the partitions that it waits for, which may raise.

    Raises Stalled after ``deadline`` seconds, and Unreachable.
    """
    ends, failures = stable_ends_each(admin, partitions, deadline, hidden)
    _raise_first(failures)
    return ends


def stable_ends_each(
    admin: AdminClient,
    partitions: Partitions,
    deadline: float,
    hidden: Callable[[Collection[TopicPartition]], None] = lambda waiting: None,
) -> Each:
    """The same as `stable_ends`, with the error of each partition whose end is not known after ``deadline`` seconds."""
    ends, failures = _list_each(admin, partitions, _LATEST, committed=False)
    waiting, still_hidden = set(ends), wait_log(admin)

    def look() -> Offsets:
        stable, failed = last_stable_each(admin, waiting)
        failures.update(failed)
        waiting.intersection_update([partition for partition, offset in stable.items() if offset < ends[partition]])
        still = {partition: stable[partition] for partition in waiting}
        still_hidden(still)
        return still

    still_open = look()  # nearly always nothing is hidden, and then a loop would cost more than the question
    if still_open and deadline > 0:
        hidden(still_open)
        time.sleep(0.02)
        still_open = tenacity.Retrying(
            retry=tenacity.retry_if_result(bool),
            stop=tenacity.stop_after_delay(deadline),
            wait=tenacity.wait_exponential(multiplier=0.04, max=0.5),
            retry_error_callback=lambda state: state.outcome and state.outcome.result(),
        )(look)
    for number, (partition, stable) in enumerate(sorted(still_open.items())):
        description, at = named(admin, partition) if number < MOST else "", partition
        where = f"--topic {at.topic} --partition {at.partition}"
        abort = f"kafka-transactions.sh --bootstrap-server <cluster> abort {where} --start-offset {stable}"
        failures[at] = Stalled(
            f"{at}: the last stable offset stays at {stable}, below {ends[at]}: a transaction is open{description}",
            f"find it: kafka-transactions.sh find-hanging {where}" + ("" if description else f"; if it hangs: {abort}"),
        )
    return {partition: end for partition, end in ends.items() if partition not in failures}, failures


_ends: OfEachAdmin[SharedRead[TopicPartition, End]] = OfEachAdmin(SharedRead)
_ends_now: OfEachAdmin[SharedRead[TopicPartition, End]] = OfEachAdmin(SharedRead)


def shown_log(admin: AdminClient, at: TopicPartition) -> End | None:
    """As `shown_logs`, of one partition; None if that does not have it."""
    return _asked(_ends, admin, at, shown_logs)


def shared_leader_epoch(admin: AdminClient, at: TopicPartition) -> int | None:
    """As `leader_epoch`."""
    known = _asked(_ends_now, admin, at, ends_now)
    return leader_epoch(admin, at) if known is None or known[1] is None else known[1]


def _asked(
    questions: OfEachAdmin[SharedRead[TopicPartition, End]],
    admin: AdminClient,
    at: TopicPartition,
    ask: Callable[[AdminClient, Partitions], Mapping[TopicPartition, End]],
) -> End | None:
    def answers(wanted: Set[TopicPartition]) -> Mapping[TopicPartition, End]:
        with suppress(ReplicationError):  # who asks alone gets an error of its own
            return ask(admin, wanted)
        return {}

    return questions.of(admin).ask(at, answers)
