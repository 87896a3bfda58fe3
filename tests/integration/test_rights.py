"""Each right of docs/connections.md: without it, `check` and a run name side, right and resource; with it they go on.

One broker is both sides. Its two users have nothing but the documented rights, each on its own side.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # re-exported without saying so
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from kafka_replication.ledger.entries import POSITIONS, RECEIPTS
from kafka_replication.model.errors import ReplicationError
from kafka_replication.planning.backfill_request import parse
from kafka_replication.runs import groups as moving
from kafka_replication.runs.backfill import prepare_interval
from kafka_replication.runs.leasing import interval_scope, leased
from kafka_replication.runs.run import open_run
from kafka_replication.runtime.events import Event
from tests.support import whole_runs
from tests.support.command_line import command
from tests.support.intervals import MINUTE, SETTINGS, SIX
from tests.support.jobs import InProcess
from tests.support.secured import LONGEST_TRANSACTION, Acl, SecuredCluster, on_topic, secured_cluster
from tests.support.two_users import COPY, NAME, TOPIC, Pair
from tests.support.waiting import wait_until

GROUP = Acl("DESCRIBE", "GROUP", f"kafka-replication/{NAME}")
TRANSACTIONS = Acl("WRITE", "TRANSACTIONAL_ID", f"kafka-replication/{NAME}/", prefixed=True)
SOURCE = [*on_topic(TOPIC, "READ", "DESCRIBE_CONFIGS"), GROUP]
ON_TARGET = ("READ", "WRITE", "CREATE", "DESCRIBE_CONFIGS")
TARGET = [
    *(acl for name in (COPY, POSITIONS, RECEIPTS) for acl in on_topic(name, *ON_TARGET)),
    TRANSACTIONS,
    GROUP,
]
DOCUMENTED = [("source", acl) for acl in SOURCE] + [("target", acl) for acl in TARGET]
SPOKEN = {
    "READ": "Read",
    "WRITE": "Write",
    "CREATE": "Create",
    "DESCRIBE": "Describe",
    "DESCRIBE_CONFIGS": "DescribeConfigs",
}


@pytest.fixture(scope="module")
def secured(stack_folder: Path) -> Iterator[SecuredCluster]:
    with secured_cluster(stack_folder) as cluster:
        cluster.admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(30)
        yield cluster


@pytest.fixture(scope="module")
def pair(secured: SecuredCluster) -> Pair:
    users = {"source": "reader", "target": "writer"}
    pair = Pair(secured, users, {side: secured.add_user(user) for side, user in users.items()})
    pair.grant("source", *SOURCE)
    pair.grant("target", *TARGET)
    pair.produce(10)
    return pair


def prepared(pair: Pair, acl: Acl) -> None:
    """`Create` matters only while the topics are missing."""
    if acl.operation == "CREATE":
        pair.empty_the_target()
        pair.new_store()
    else:
        pair.fill_the_target()


def said(side: str, acl: Acl, text: str, pair: Pair) -> bool:
    """Whether the text names side, right and resource."""
    what = re.escape(SPOKEN[acl.operation]) + rf" on {acl.kind.lower().replace('_', ' ')}\D*" + re.escape(acl.name)
    return re.search(rf"{side} {re.escape(pair.cluster.address)}[^;]*: {what}", text) is not None


def granted_by(acl: Acl) -> str:
    """The end of the command that grants it, as docs/connections.md has it."""
    pattern = " --resource-pattern-type prefixed" if acl.prefixed else ""
    return f"--operation {SPOKEN[acl.operation]} --{acl.kind.lower().replace('_', '-')} {acl.name}{pattern}"


@pytest.mark.parametrize(("side", "acl"), DOCUMENTED, ids=lambda value: str(value))
def test_check_names_the_right_that_is_missing(pair: Pair, side: str, acl: Acl) -> None:
    prepared(pair, acl)
    pair.withdraw(side, acl)
    try:
        began = time.monotonic()
        found = pair.check()
        print(f"\n{side} {acl}: {time.monotonic() - began:.2f} s")
    finally:
        pair.grant(side, acl)
    assert len(found) == 1, [str(finding) for finding in found]
    assert said(side, acl, str(found[0]), pair), str(found[0])
    assert granted_by(acl) in found[0].remedy
    assert f"--allow-principal User:{pair.users[side]}" in found[0].remedy
    assert "a rule that denies it has to be removed" in found[0].remedy, "no user of the pair sees the rules"


def test_check_finds_a_transaction_that_the_target_does_not_allow(pair: Pair) -> None:
    assert pair.check(copy={"transaction_timeout": LONGEST_TRANSACTION}) == []
    (found,) = pair.check(copy={"transaction_timeout": LONGEST_TRANSACTION + 1})
    assert pair.cluster.address in found.where and "INVALID_TRANSACTION_TIMEOUT" in found.what
    assert "transaction.max.timeout.ms" in found.remedy


def test_a_whole_replication_needs_no_other_right(pair: Pair) -> None:
    """Over TLS, with SCRAM, from the command line, on Spark; and what the command says if a right is withdrawn."""
    pair.empty_the_target()
    pair.new_store()
    assert command(pair, "check")[0] == 0
    code, _, err = command(pair, "run")
    assert code == 0, err
    pair.assert_copied()
    pair.produce(1)
    write = Acl("WRITE", "TOPIC", COPY)
    pair.withdraw("target", write)
    try:
        for name in ("check", "plan", "run"):
            code, out, err = command(pair, name)
            assert code == 1
            assert said("target", write, out + err, pair), out + err
    finally:
        pair.grant("target", write)
    assert pair.run() == ""
    pair.assert_copied()


def test_whole_batches_need_no_other_right(pair: Pair) -> None:
    """Their connections of their own log in, too."""
    pair.fill_the_target()
    pair.produce(10)
    assert pair.run(copy=pair.document()["copy"] | {"engine": "batch"}) == ""
    pair.assert_copied()
    run = open_run(pair.replication(), pair, pair.store, "look")
    receipts = run.clusters.ledger.receipts(dict.fromkeys(run.view().positions))
    engines = {max(receipts.all(key), key=lambda receipt: receipt.range.from_).engine for key in run.view().positions}
    assert "batch/1" in engines


SEES_RULES = Acl("DESCRIBE", "BROKER", "kafka-cluster")
ONE_ID = Acl("WRITE", "TRANSACTIONAL_ID", f"kafka-replication/{NAME}/{TOPIC}/1/{COPY}", deny=True)


@pytest.mark.parametrize("acl", [Acl("WRITE", "TOPIC", COPY, deny=True), ONE_ID], ids=lambda value: str(value))
def test_check_names_the_rule_that_denies_and_the_command_that_removes_it(pair: Pair, acl: Acl) -> None:
    pair.fill_the_target()
    pair.grant("target", acl, SEES_RULES)
    try:
        (found,) = pair.check()
    finally:
        pair.withdraw("target", acl, SEES_RULES)
    assert said("target", acl, str(found), pair) and "is denied by a rule" in found.what, str(found)
    assert "--remove --deny-principal User:writer --deny-host '*'" in found.remedy, "no --add can help"
    assert granted_by(acl) in found.remedy
    assert pair.check() == []


def test_a_rule_on_one_id_that_no_client_may_see_fails_its_partition_alone_and_is_suspected(pair: Pair) -> None:
    pair.fill_the_target()
    pair.produce(20)
    pair.grant("target", ONE_ID)
    try:
        assert pair.check() == [], "asking for one id does not show the others"
        text = pair.run()
    finally:
        pair.withdraw("target", ONE_ID)
    assert f"as {ONE_ID.name}: target" in text, text
    assert "if it is granted already, a rule that denies it has to be removed" in " ".join(text.split())
    source, target = pair.values(TOPIC), pair.values(COPY)
    assert target[0] == source[0] and len(target[1]) < len(source[1])
    assert pair.run() == ""
    pair.assert_copied()


class Withdrawing(logging.Handler):
    """Withdraws a right when the first chunk was committed."""

    def __init__(self, pair: Pair, side: str, acl: Acl) -> None:
        super().__init__()
        self.withdraw: Callable[[], None] | None = lambda: pair.withdraw(side, acl)

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, "event", None) is Event.CHUNK_COMMITTED and self.withdraw is not None:
            act, self.withdraw = self.withdraw, None
            act()


@pytest.mark.parametrize(
    ("side", "acl"),
    [
        ("source", Acl("READ", "TOPIC", TOPIC)),
        ("target", Acl("WRITE", "TOPIC", COPY)),
        pytest.param("target", Acl("WRITE", "TOPIC", POSITIONS), marks=pytest.mark.slow),
        pytest.param("target", TRANSACTIONS, marks=pytest.mark.slow),
    ],
    ids=lambda value: str(value),
)
def test_a_right_that_is_withdrawn_in_mid_run_is_named_and_the_next_run_finishes(
    pair: Pair, side: str, acl: Acl
) -> None:
    pair.fill_the_target()
    pair.produce(200)
    handler, log = Withdrawing(pair, side, acl), logging.getLogger("kafka_replication.spark.worker")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        text = pair.run(copy={"transaction_timeout": 30, "chunk_records": 10})
    finally:
        log.removeHandler(handler)
        log.setLevel(logging.NOTSET)
        pair.grant(side, acl)
    assert handler.withdraw is None, "a chunk was committed"
    assert said(side, acl, text, pair), text
    assert granted_by(acl) in " ".join(text.split()), text
    assert pair.run() == ""
    pair.assert_copied()


def prepare_one_minute(pair: Pair) -> None:
    bare = open_run(pair.replication(**SETTINGS), pair, pair.store, "scheduled")
    with leased(bare, interval_scope(bare)) as run:
        prepare_interval(run, SIX, SIX + MINUTE)


def backfill_two_offsets(pair: Pair) -> None:
    request = parse(pair.replication(), topics=[TOPIC], from_=0, until=2)
    whole_runs.backfill(pair.replication(), pair, pair.store, InProcess(), request)


# `test_check_names_the_right_that_is_missing` has all of them.
@pytest.mark.parametrize(
    "acl",
    [
        GROUP,
        pytest.param(Acl("CREATE", "TOPIC", RECEIPTS), marks=pytest.mark.slow),
        pytest.param(Acl("WRITE", "TOPIC", COPY), marks=pytest.mark.slow),
    ],
    ids=str,
)
@pytest.mark.parametrize("way", [prepare_one_minute, backfill_two_offsets])
def test_data_intervals_and_backfills_name_a_missing_right_before_they_open_anything(
    pair: Pair, way: Callable[[Pair], None], acl: Acl
) -> None:
    pair.empty_the_target()
    pair.new_store()
    pair.cluster.admin.create_topics([NewTopic(COPY, 2, 1)])[COPY].result(30)
    pair.withdraw("target", acl)
    try:
        with pytest.raises(ReplicationError) as caught:
            way(pair)
    finally:
        pair.grant("target", acl)
    assert said("target", acl, caught.value.what, pair), caught.value
    assert granted_by(acl) in caught.value.remedy
    assert not {POSITIONS, RECEIPTS} & pair.names(), "nothing was opened"


@pytest.mark.slow
@pytest.mark.parametrize(("side", "acl"), DOCUMENTED, ids=lambda value: str(value))
def test_a_run_names_the_right_that_is_missing_and_goes_on_with_it(pair: Pair, side: str, acl: Acl) -> None:
    prepared(pair, acl)
    pair.produce(3)
    pair.withdraw(side, acl)
    try:
        began = time.monotonic()
        text = pair.run()
        print(f"\n{side} {acl}: {time.monotonic() - began:.2f} s")
    finally:
        pair.grant(side, acl)
    assert said(side, acl, text, pair), text
    assert "exclude" not in text
    assert pair.run() == ""


def test_without_alter_configs_settings_are_not_followed_and_records_are_copied(pair: Pair) -> None:
    pair.fill_the_target()
    allowed = Acl("ALTER_CONFIGS", "TOPIC", COPY)
    follow: dict[str, Any] = {"target_topics": {"follow": "apply"}}

    def missing(**more: Any) -> list[str]:
        return [str(found) for found in pair.findings(**more) if "AlterConfigs" in found.what]

    def set_on(topic: str, value: str) -> None:
        entry = ConfigEntry("flush.messages", value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        pair.cluster.admin.incremental_alter_configs([resource])[resource].result(30)

    def set_now() -> str:
        resource = ConfigResource(ResourceType.TOPIC, COPY)
        return str(pair.cluster.admin.describe_configs([resource])[resource].result(30)["flush.messages"].value)

    pair.grant("target", allowed)
    set_on(TOPIC, "500")
    assert missing(**follow) == []
    assert pair.run(**follow) == ""
    assert set_now() == "500"
    pair.withdraw("target", allowed)
    set_on(TOPIC, "600")
    (found,) = missing(**follow)
    assert f"AlterConfigs on topic {COPY} is missing" in found and found.startswith("warning")
    assert f"--operation AlterConfigs --topic {COPY}" in found
    assert missing() == [], "it is needed with follow: apply only"
    pair.produce(5)
    report = pair.report(**follow)
    assert report.outcome == "done", report.table()
    assert any("flush.messages was not set" in note and "AlterConfigs" in note for note in report.notes), report.notes
    pair.assert_copied()
    assert set_now() == "500"


def test_a_topic_that_a_pattern_selects_and_the_rights_hide_is_named(pair: Pair) -> None:
    pair.fill_the_target()
    pair.cluster.admin.create_topics([NewTopic("orders-hidden", 1, 1)])["orders-hidden"].result(30)
    chosen: dict[str, Any] = {"topics": {"include": ["^orders"], "rename": "copy.{topic}"}}

    def named() -> list[str]:
        return [str(found) for found in pair.findings(**chosen) if "may not describe it" in found.what]

    wait_until(lambda: "orders-hidden" in pair.names())
    assert named() == [], "only with Describe on the cluster"
    pair.grant("source", SEES_RULES)
    try:
        (found,) = named()
        chosen["topics"]["exclude"] = ["orders-hidden"]
        assert named() == []
    finally:
        pair.withdraw("source", SEES_RULES)
        pair.cluster.admin.delete_topics(["orders-hidden"])["orders-hidden"].result(30)
    assert found.startswith("warning: orders-hidden: ") and "--operation Read --topic orders-hidden" in found
    assert "--allow-principal User:reader" in found


def test_a_group_needs_describe_at_the_source_and_read_on_the_target(pair: Pair) -> None:
    """Without the first nobody shows it; without the second `check` and a run name the right, and the copy goes on."""
    groups: Any = {"groups": {"include": ["app"]}}
    settings = {**pair.cluster.as_admin(), "group.id": "app", "log_level": 0}
    with closing(Consumer(settings)) as consumer:
        consumer.commit(offsets=[TopicPartition(TOPIC, 0, 1)], asynchronous=False)
    pair.fill_the_target()
    run = open_run(pair.replication(**groups), pair, pair.store, "groups")
    assert ["app has no committed offsets" in problem for problem in moving.move(run, apply=True).problems] == [True]
    pair.grant("source", Acl("DESCRIBE", "GROUP", "app"))
    wanted = Acl("READ", "GROUP", "app")
    assert any(said("target", wanted, str(finding), pair) for finding in pair.check(**groups))
    assert pair.run(**groups) == ""
    [row] = pair.store.groups(NAME)
    assert row.state == "failed"
    assert said("target", wanted, row.why, pair)
    pair.grant("target", wanted)
    assert pair.check(**groups) == []
    assert pair.run(**groups) == ""
    [row] = pair.store.groups(NAME)
    assert (row.state, row.exact, [place.target_topic for place in row.partitions]) == ("moved", 1, [COPY])
