"""What is asked of brokers that do not answer at once: only what is missing, less and less often, and errors by name."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from kafka_replication.kafka import offsets, topics
from kafka_replication.model.errors import NotAuthorized, Stalled, Unreachable
from kafka_replication.model.offsets import TopicPartition

Answer = Callable[[ClientPartition, IsolationLevel], int | KafkaError]


def future(answer: int | KafkaError) -> Future[Any]:
    made: Future[Any] = Future()
    if isinstance(answer, KafkaError):
        made.set_exception(KafkaException(answer))
    else:
        made.set_result(SimpleNamespace(offset=answer, leader_epoch=0))
    return made


@dataclass
class Admin:
    """Answers ListOffsets as ``answer`` says, and metadata requests."""

    answer: Answer
    asked: list[set[str]] = field(default_factory=list)
    metadata: list[str] = field(default_factory=list)
    timeouts: list[float] = field(default_factory=list)

    def list_offsets(
        self, wanted: Mapping[ClientPartition, Any], *, isolation_level: IsolationLevel, request_timeout: float
    ) -> dict[ClientPartition, Future[Any]]:
        self.timeouts.append(request_timeout)
        self.asked.append({f"{at.topic}-{at.partition}" for at in wanted})
        return {at: future(self.answer(at, isolation_level)) for at in wanted}

    def list_topics(self, topic: str, timeout: float) -> None:
        self.metadata.append(topic)


def ask(admin: Any, *partitions: TopicPartition, patience: float) -> dict[TopicPartition, Any]:
    return offsets._ask(admin, partitions, offsets._LATEST, committed=True, patience=offsets.Patience(30.0, patience))


def test_only_the_partition_that_did_not_answer_is_asked_again() -> None:
    leaderless = [KafkaError(KafkaError.LEADER_NOT_AVAILABLE)] * 2

    def answer(at: ClientPartition, level: IsolationLevel) -> int | KafkaError:
        return leaderless.pop() if at.topic == "b" and leaderless else 7

    admin = Admin(answer)
    wanted = TopicPartition("a", 0), TopicPartition("b", 0), TopicPartition("c", 0)
    found = ask(admin, *wanted, patience=15.0)
    assert {at: info.offset for at, info in found.items()} == dict.fromkeys(wanted, 7)
    assert admin.asked == [{"a-0", "b-0", "c-0"}, {"b-0"}, {"b-0"}]
    assert admin.metadata == ["b", "b"]


def test_while_one_partition_after_the_other_answers_the_rest_is_asked_again() -> None:
    """A broker needs a while for a new topic of 1,000 partitions; then each answer shows that it goes on."""
    wanted, ready = [TopicPartition("a", number) for number in range(6)], list[int]()

    def answer(at: ClientPartition, level: IsolationLevel) -> int | KafkaError:
        return 7 if at.partition < len(ready) else KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION)

    admin = Admin(answer)
    admin.list_topics = lambda *_, **__: ready.append(0)  # type: ignore[method-assign]
    assert ask(admin, *wanted, patience=1.7).keys() == set(wanted)
    with pytest.raises(Unreachable, match="NOT_LEADER_FOR_PARTITION"):
        ask(Admin(answer), TopicPartition("a", 7), patience=0.0)


def test_a_partition_without_an_error_and_without_an_offset_is_asked_again() -> None:
    """So librdkafka answers for the partitions of a broker that closed the connection."""
    answers = [OFFSET_INVALID, OFFSET_INVALID, 7]
    admin = Admin(lambda at, level: answers.pop(0))
    assert ask(admin, TopicPartition("a", 0), patience=15.0)[TopicPartition("a", 0)].offset == 7
    admin = Admin(lambda at, level: OFFSET_INVALID)
    with pytest.raises(Unreachable, match="listing offsets of a-0: _NO_OFFSET: its broker did not answer"):
        ask(admin, TopicPartition("a", 0), patience=0.0)


def test_the_first_requests_end_soon_and_a_slow_broker_is_given_more_time() -> None:
    """While the client takes a broker that is down for a leader, each request keeps a processor busy until its end."""
    answers: list[int | KafkaError] = [KafkaError(KafkaError._TIMED_OUT)] * 3
    admin = Admin(lambda at, level: answers.pop() if answers else 7)
    assert ask(admin, TopicPartition("a", 0), patience=15.0)[TopicPartition("a", 0)].offset == 7
    assert admin.timeouts == [2.0, 4.0, 8.0, 16.0] and len(admin.metadata) == 3


def test_a_request_to_a_controller_that_is_down_ends_soon_and_is_sent_again_after_new_metadata() -> None:
    answers: list[int | KafkaError] = [KafkaError(KafkaError._TIMED_OUT), KafkaError(KafkaError._TIMED_OUT), 7]
    admin, sent = Admin(lambda at, level: 7), list[float]()

    def send(seconds: float) -> dict[str, Future[Any]]:
        sent.append(seconds)
        return {"a": future(answers[len(sent) - 1]), "b": future(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))}

    got = topics._ask(admin, "a", send)  # type: ignore[arg-type]
    first, second = got["a"], got["b"]
    assert not isinstance(first, KafkaError) and first.offset == 7
    assert isinstance(second, KafkaError) and second.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert sent == [2.0, 4.0, 8.0] and admin.metadata == ["a", "a"]


def test_a_partition_without_a_leader_is_named() -> None:
    error = KafkaError(KafkaError.LEADER_NOT_AVAILABLE)
    admin = Admin(lambda at, level: error if at.partition else 7)
    with pytest.raises(Unreachable, match=r"a-1 has no leader.* 1 more"):
        ask(admin, *(TopicPartition("a", number) for number in range(3)), patience=0.0)


def test_an_error_that_lasts_is_raised_at_once() -> None:
    codes = {0: KafkaError.LEADER_NOT_AVAILABLE, 1: KafkaError.TOPIC_AUTHORIZATION_FAILED}
    admin = Admin(lambda at, level: KafkaError(codes[at.partition]))
    with pytest.raises(NotAuthorized, match="listing offsets of a-1"):
        ask(admin, TopicPartition("a", 0), TopicPartition("a", 1), patience=15.0)
    assert len(admin.asked) == 1


def test_waiting_for_the_last_stable_offset_backs_off(monkeypatch: pytest.MonkeyPatch) -> None:
    at, pauses = TopicPartition("a", 0), list[float]()
    end = {IsolationLevel.READ_UNCOMMITTED: 9, IsolationLevel.READ_COMMITTED: 5}

    here, sleep = threading.get_ident(), time.sleep

    def pause(seconds: float) -> None:
        if threading.get_ident() != here:  # a thread that another test left behind
            sleep(seconds)
            return
        pauses.append(seconds)
        if len(pauses) == 8:
            end[IsolationLevel.READ_COMMITTED] = 9

    monkeypatch.setattr("time.sleep", pause)
    admin: Any = Admin(lambda at, level: end[level])
    assert offsets.stable_ends(admin, [at], 60.0) == {at: 9}
    assert pauses == pytest.approx([0.02, 0.04, 0.08, 0.16, 0.32, 0.5, 0.5, 0.5])
    end[IsolationLevel.READ_COMMITTED] = 5
    with pytest.raises(Stalled, match="a-0: the last stable offset stays at 5, below 9"):
        offsets.stable_ends(admin, [at], 0.0)


@dataclass
class NewTopic:
    """Metadata of a topic that was just created: an error, or the leader of its one partition."""

    answers: list[KafkaError | int]

    def list_topics(self, name: str, timeout: float) -> Any:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, KafkaError):
            raise KafkaException(answer)
        return SimpleNamespace(topics={name: SimpleNamespace(partitions={0: SimpleNamespace(leader=answer)})})


GONE = KafkaError(KafkaError._TRANSPORT)


def await_leaders(*answers: KafkaError | int, timeout: float) -> None:
    admin: Any = NewTopic(list(answers))
    topics._await_leaders(admin, "orders", timeout)


def test_a_broker_that_restarts_while_a_topic_is_created_is_waited_for() -> None:
    await_leaders(GONE, -1, GONE, 2, timeout=30.0)


@pytest.mark.parametrize("answer", [GONE, -1])
def test_a_new_topic_without_leaders_is_unreachable_by_name(answer: KafkaError | int) -> None:
    with pytest.raises(Unreachable, match="topic orders"):
        await_leaders(answer, timeout=0.0)
