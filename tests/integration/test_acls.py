"""`kafka-replication acls` between two users of one broker: what its authorizer says afterwards, and what is said without a right."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # re-exported without saying so
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from kafka_replication.kafka import acls as kafka_acls
from kafka_replication.ledger.entries import POSITIONS
from kafka_replication.model.errors import NotAuthorized, Refused
from kafka_replication.planning.acls import Acl as Rule
from kafka_replication.reporting.acls import AclsDocument
from kafka_replication.runs import acls, checking, cutover
from kafka_replication.runs.run import Run, open_run
from kafka_replication.runtime.deadline import Deadline
from tests.faults.kafka_tool import run_tool
from tests.support.clusters import Brokers
from tests.support.command_line import command
from tests.support.jobs import InProcess
from tests.support.secured import Acl, SecuredCluster, on_topic, secured_cluster
from tests.support.two_users import COPY, TOPIC, Pair
from tests.support.waiting import wait_until

READS_RULES, WRITES_RULES = Acl("DESCRIBE", "BROKER", "kafka-cluster"), Acl("ALTER", "BROKER", "kafka-cluster")
SEES_COPIES = Acl("DESCRIBE", "TOPIC", "copy.", prefixed=True)


@dataclass
class Carrying(Pair):
    section: dict[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        return super().document() | {"acls": self.section, "groups": {"include": ["billing"]}}

    def opened(self, **section: Any) -> Run:
        return open_run(self.replication(acls=section), self, self.store, "acls", Deadline.after(60), looks=True)

    def look(self, **section: Any) -> AclsDocument:
        return acls.look(self.opened(**section))

    def rules(self, user: str, name: str = COPY) -> set[str]:
        return {
            f"{rule.permission} {rule.operation}"
            for rule in self.all_rules()
            if (rule.principal, rule.name) == (f"User:{user}", name)
        }

    def all_rules(self) -> frozenset[Rule]:
        return kafka_acls.read(self.cluster.admin)

    def may(self, user: str, topic: str) -> set[str]:
        """What the broker lets the user do with the topic; empty if it does not even show it."""
        client = AdminClient({**self.settings[user], "log_level": 0})
        asked = client.describe_topics(TopicCollection([topic]), include_authorized_operations=True, request_timeout=20)
        try:
            return {operation.name for operation in asked[topic].result(30).authorized_operations}
        except Exception:  # noqa: BLE001 - TOPIC_AUTHORIZATION_FAILED
            return set()


@pytest.fixture(scope="module")
def secured(stack_folder: Path) -> Iterator[SecuredCluster]:
    with secured_cluster(stack_folder) as cluster:
        for future in cluster.admin.create_topics([NewTopic(name, 1, 1) for name in (TOPIC, COPY)]).values():
            future.result(30)
        yield cluster


@pytest.fixture
def pair(secured: SecuredCluster) -> Iterator[Carrying]:
    users = {"source": "reader", "target": "writer", "alice": "alice", "mallory": "mallory"}
    pair = Carrying(secured, users, {side: secured.add_user(user) for side, user in users.items()})
    pair.grant("source", READS_RULES, *on_topic(TOPIC, "DESCRIBE"))
    pair.grant("target", WRITES_RULES, SEES_COPIES)
    yield pair
    every: list[Any] = [ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY]
    for future in secured.admin.delete_acls([AclBindingFilter(*[*every, AclPermissionType.ANY])]).values():
        future.result(30)


def test_what_the_broker_allows_at_the_source_it_allows_on_the_copy_and_a_second_time_nothing_is_done(
    pair: Carrying,
) -> None:
    """By the command line itself. What writes is withheld, and who is denied stays denied, also by a rule for all topics."""
    pair.grant("alice", *on_topic(TOPIC, "ALL"))
    pair.grant("mallory", *on_topic(TOPIC, "READ", "WRITE"), Acl("READ", "TOPIC", "*", deny=True))
    assert pair.may("alice", COPY) == pair.may("mallory", COPY) == set()
    code, out, err = command(pair, "acls", "plan", "--json")
    assert code == 0, err
    planned = json.loads(out)["plan"]
    assert {rule["name"] for rule in planned["to_create"]} == {COPY} and len(planned["to_create"]) == 4
    assert len(planned["withheld"]) == 2 and pair.may("alice", COPY) == set(), "a plan changes nothing"
    code, out, err = command(pair, "acls", "apply")
    assert code == 0, err
    assert f"+ TOPIC {COPY} DENY READ User:mallory" in err, "shown before it is done"
    assert "4 created, 0 removed, 0 present already" in out
    assert pair.may("alice", COPY) == {"READ", "DESCRIBE", "DESCRIBE_CONFIGS"}
    assert pair.may("mallory", COPY) == {"DESCRIBE"}
    before = pair.all_rules()
    code, out, err = command(pair, "acls", "apply", "--json")
    assert code == 0, err
    document = json.loads(out)
    assert (document["applied"], document["plan"]["to_create"], len(document["plan"]["present"])) == (True, [], 4)
    assert pair.all_rules() == before
    made = next(row for row in document["scram_users"] if row["user"] == "alice")
    assert (made["mechanism"], made["iterations"], made["on_target"]) == ("SCRAM-SHA-512", 4096, True)


def test_a_prefix_is_carried_over_where_the_target_shows_that_it_reaches_copies_alone(pair: Carrying) -> None:
    pair.grant("alice", Acl("READ", "TOPIC", "ord", prefixed=True), Acl("READ", "TOPIC", "*"))
    document = acls.apply(pair.opened(), pair.look())
    assert [str(rule) for rule in document.plan.to_create] == ["TOPIC copy.ord* ALLOW READ User:alice"]
    assert [one.acl.name for one in document.plan.named] == ["*"]
    kafka_acls.write(pair.cluster.admin, [], document.plan.to_create)
    pair.grant("target", *on_topic(COPY, "DESCRIBE"))
    pair.withdraw("target", SEES_COPIES)
    (prefix,) = (one for one in pair.look().plan.named if one.acl.name == "ord")
    assert "hide names that begin with copy.ord from this client" in prefix.reason
    pair.grant("target", SEES_COPIES)
    pair.cluster.admin.create_topics([NewTopic("copy.ordinary", 1, 1)])["copy.ordinary"].result(30)
    try:
        (prefix,) = (one for one in pair.look().plan.named if one.acl.name == "ord")
        assert "also reach copy.ordinary" in prefix.reason
    finally:
        pair.cluster.admin.delete_topics(["copy.ordinary"])["copy.ordinary"].result(30)


def test_principals_writes_and_removal(pair: Carrying) -> None:
    pair.grant("alice", *on_topic(TOPIC, "ALL"), Acl("ALL", "GROUP", "billing"))
    section = {"principals": {"User:alice": "User:alice-dr"}, "writes": True}
    run = pair.opened(**section)
    document = acls.apply(run, acls.look(run))
    assert document.plan.elsewhere["GROUP"] == 1, "in one cluster a group is no copy of itself"
    assert (pair.rules("alice-dr"), pair.rules("alice-dr", "billing")) == ({"ALLOW ALL"}, set())
    (row,) = document.scram_users
    assert not row.on_target and "--entity-name alice-dr --add-config 'SCRAM-SHA-512=[iterations=4096," in row.command
    # Then alice is to have less, and somebody else had a right only on the target.
    pair.grant("target", *on_topic(COPY, "WRITE"), *on_topic(POSITIONS, "WRITE"))
    pair.settings = dict.fromkeys(("source", "target"), pair.cluster.as_admin())  # not the principals of the runs
    pair.grant("mallory", *on_topic(COPY, "READ"))
    acls.apply(pair.opened(), pair.look())
    assert (pair.rules("alice-dr"), pair.rules("mallory")) == ({"ALLOW ALL"}, {"ALLOW READ"}), "nothing was removed"
    shown = pair.look(remove=True)
    assert {rule.principal for rule in shown.plan.to_remove} == {"User:alice-dr", "User:mallory"}
    acls.apply(pair.opened(), shown)
    assert pair.rules("alice-dr") == pair.rules("mallory") == set()
    assert pair.rules("alice") == {"ALLOW READ", "ALLOW DESCRIBE_CONFIGS"}
    assert pair.rules("writer") == {"ALLOW WRITE"}, "the replication's own rights stay"
    assert pair.look(remove=True).plan.to_remove == ()


@pytest.mark.slow
def test_between_two_clusters_the_selected_groups_keep_their_names(pair: Carrying, stack_folder: Path) -> None:
    pair.grant("alice", *on_topic(TOPIC, "READ"), Acl("ALL", "GROUP", "billing"), Acl("READ", "GROUP", "other"))
    pair.grant("mallory", Acl("READ", "GROUP", "bill", prefixed=True, deny=True))
    with secured_cluster(stack_folder) as target:
        pair.settings = {**pair.settings, "target": target.as_admin()}
        rules = {str(rule) for rule in acls.apply(pair.opened(), pair.look()).plan.to_create}
        assert {str(rule) for rule in kafka_acls.read(target.admin)} == rules
        assert acls.apply(pair.opened(), pair.look()).plan.to_create == ()
    denied = {"GROUP bill* DENY READ User:mallory"}
    assert rules == {f"TOPIC {COPY} ALLOW READ User:alice", "GROUP billing ALLOW READ User:alice", *denied}


@pytest.mark.parametrize(
    ("side", "acl", "said"), [("source", READS_RULES, "Describe"), ("target", WRITES_RULES, "Alter")]
)
def test_a_right_that_is_missing_is_named_and_never_an_empty_list(
    pair: Carrying, side: str, acl: Acl, said: str
) -> None:
    pair.grant("alice", *on_topic(TOPIC, "READ"))
    looked = pair.look(remove=True)
    pair.withdraw(side, acl)
    warned = [
        str(found)
        for found in checking.check(pair.opened(remove=False)).findings
        if found.where == "kafka-replication acls"
    ]
    with pytest.raises(NotAuthorized, match=f"{side} .*{said} on cluster is missing") as caught:
        acls.apply(pair.opened(), looked if side == "target" else pair.look(remove=True))
    assert f"--operation {said} --cluster" in caught.value.remedy
    assert len(warned) == 1 and f"{said} on cluster is missing" in warned[0]
    assert pair.rules("alice") == set()
    pair.grant(side, acl)
    acls.apply(pair.opened(), pair.look(remove=True))
    assert pair.rules("alice") == {"ALLOW READ"}


class Interrupting(list[Rule]):
    """Rules that are read once for those that deny, and again for those that allow, when the right to write is gone."""

    def __init__(self, rules: Iterable[Rule], withdraw: Callable[[], None]) -> None:
        super().__init__(rules)
        self.steps = [lambda: None, withdraw]

    def __iter__(self) -> Iterator[Rule]:
        self.steps.pop(0)()
        return super().__iter__()


def test_a_right_that_is_withdrawn_in_the_middle_leaves_nobody_more_than_he_shall_have(pair: Carrying) -> None:
    pair.grant("alice", *on_topic(TOPIC, "READ"), Acl("WRITE", "TOPIC", TOPIC, deny=True))
    rules = Interrupting(pair.look().plan.to_create, lambda: pair.withdraw("target", WRITES_RULES))
    target = AdminClient({**pair.settings["target"], "log_level": 0})
    with pytest.raises(NotAuthorized):
        kafka_acls.write(target, rules, [])
    assert pair.rules("alice") == {"DENY WRITE"}
    pair.grant("target", WRITES_RULES)
    acls.apply(pair.opened(), pair.look())
    assert pair.rules("alice") == {"DENY WRITE", "ALLOW READ"}


def test_rules_of_kinds_that_the_client_does_not_know_are_named(pair: Carrying, tmp_path: Path) -> None:
    login = tmp_path / "admin.properties"
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule"
    login.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={plain} required username="admin" password="{pair.cluster.password}";\n'
    )
    common = ["--bootstrap-server", pair.cluster.cluster.bootstrap, "--command-config", str(login)]
    new = ["--add", "--allow-principal", "User:odd", "--operation", "TwoPhaseCommit", "--transactional-id", "flink"]
    run_tool("org.apache.kafka.tools.AclCommand", *common, *new)
    (one,) = pair.look().plan.named
    assert (one.acl.resource, one.acl.operation, one.acl.principal) == ("TRANSACTIONAL_ID", "UNKNOWN", "User:odd")
    assert "kafka-acls.sh --list" in one.reason


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_cluster_without_an_authorizer_is_named(pair: Carrying, side: str, target_cluster: Brokers) -> None:
    pair.settings = {**pair.settings, side: {"bootstrap.servers": target_cluster.bootstrap}}
    with pytest.raises(Refused, match=f"{side} {target_cluster.bootstrap}.*has no authorizer") as caught:
        pair.look()
    assert "authorizer.class.name" in caught.value.remedy


class Died(BaseException):
    """As the end of a process."""


def test_a_cut_over_denies_producers_and_gives_it_back(pair: Carrying) -> None:
    """Of topics that were never copied, too. Its rule is noted before it is made; one of somebody else is not given back."""
    pair.settings = {**pair.settings, "source": pair.cluster.as_admin(), "target": pair.cluster.as_admin()}
    pair.new_store()
    wishes = cutover.Wishes(by="ann", quiet=0.5, deny=True)
    pair.grant("alice", *on_topic(TOPIC, "WRITE"))
    assert "WRITE" in pair.may("alice", TOPIC)
    run = open_run(pair.replication(acls={}, groups={}), pair, pair.store, "over", Deadline.after(60))
    turn = cutover.Turn(run=run, asked=wishes, launcher=InProcess())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kafka_acls, "write", lambda *_: (_ for _ in ()).throw(Died))
        with pytest.raises(Died):
            turn.carry_out(turn.steps)
    assert "WRITE" in pair.may("alice", TOPIC), "noted, and not made yet"
    assert turn.carry_out(turn.steps[:1]), turn.done
    wait_until(lambda: "WRITE" not in pair.may("alice", TOPIC))
    assert turn.carry_out(turn.steps[:1]), "it may be repeated"
    done = cutover.abort(run, wishes, InProcess())
    assert done.steps[0].what == "producers may write to 1 topic on source again"
    wait_until(lambda: "WRITE" in pair.may("alice", TOPIC))
    kafka_acls.write(pair.cluster.admin, [kafka_acls.denial(TOPIC)], [])
    done = cutover.cutover(run, wishes, InProcess())
    assert "on source already, and not ours" in done.text
    assert cutover.abort(run, wishes, InProcess()).steps[0].what == "nothing was denied"
    assert kafka_acls.denial(TOPIC) in pair.all_rules()
