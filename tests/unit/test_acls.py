"""Which rights of the source the target gets on its copies, decided without a cluster."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_replication.config.topics import Acls
from kafka_replication.planning.acls import Acl, AclPlan, Copied, plan

OWN = "User:replicator"
OPERATIONS = ("READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS")


def acl(text: str) -> Acl:
    """``[DENY] READ User:alice on ord* [from 10.0.0.1]``: a last * makes a prefix; * alone means all. ``g:`` begins a group."""
    rule, _, host = text.partition(" from ")
    *permission, operation, principal, _, name = rule.split()
    kind, name = ("GROUP", name[2:]) if name.startswith("g:") else ("TOPIC", name)
    prefixed = name.endswith("*") and name != "*"
    pattern, name = ("PREFIXED", name[:-1]) if prefixed else ("LITERAL", name)
    return made_of(kind, pattern, name, principal, host or "*", operation, "".join(permission) or "ALLOW")


def made_of(*values: str) -> Acl:
    return Acl(**{field.name: value for field, value in zip(fields(Acl), values, strict=True)})


def made(*rules: str) -> tuple[Acl, ...]:
    return tuple(sorted(map(acl, rules)))


def topics(names: Iterable[str], rename: str = "dr.{topic}", others: Collection[str] = (), **more: Any) -> Copied:
    def renamed(name: str) -> str:
        return rename.replace("{topic}", name)

    return Copied(names={name: renamed(name) for name in names}, rename=renamed, others=others, **more)


def planned(
    source: Iterable[str], target: Iterable[str] = (), world: Mapping[str, Any] | None = None, **settings: Any
) -> AclPlan:
    of_topics = topics(**{"names": ["orders", "ordered"], "others": ["ordinary"], **(world or {})})
    groups = Copied(names={"billing": "billing"}, rename=str, others=("bills",))
    copied = {"TOPIC": of_topics, "GROUP": groups}
    return plan(map(acl, source), frozenset(map(acl, target)), copied, Acls.model_validate(settings), [OWN])


@pytest.mark.parametrize(
    ("rule", "settings", "rules"),
    [
        ("READ User:alice on orders from 10.0.0.1", {}, ["READ User:alice on dr.orders from 10.0.0.1"]),
        ("READ User:a on orders", {"principals": {"User:a": "User:b"}}, ["READ User:b on dr.orders"]),
        ("READ User:alice on ord*", {}, ["READ User:alice on dr.ord*"]),
        ("ALL User:alice on orders", {}, ["READ User:alice on dr.orders", "DESCRIBE_CONFIGS User:alice on dr.orders"]),
        ("ALL User:alice on orders", {"writes": True}, ["ALL User:alice on dr.orders"]),
        ("WRITE User:alice on orders", {"writes": True}, ["WRITE User:alice on dr.orders"]),
        ("DENY ALL User:mallory on orders", {}, ["DENY ALL User:mallory on dr.orders"]),
        ("DENY WRITE User:a on orders", {"principals": {"User:a": "User:b"}}, ["DENY WRITE User:b on dr.orders"]),
        ("DENY READ User:m on ord*", {}, ["DENY READ User:m on dr.ord*"]),
        ("DENY READ User:m on *", {}, ["DENY READ User:m on dr.ordered", "DENY READ User:m on dr.orders"]),
        ("ALL User:alice on g:billing", {}, ["READ User:alice on g:billing"]),
        ("DENY READ User:m on g:bill*", {}, ["DENY READ User:m on g:billing"]),  # bills is no copy
    ],
)
def test_a_rule_on_copies_is_carried_over_once(rule: str, settings: dict[str, Any], rules: list[str]) -> None:
    first = planned([rule], **settings)
    assert first.to_create == made(*rules)
    again = planned([rule], rules, **settings)
    assert (again.to_create, again.present, again.left) == ((), made(*rules), ())


@pytest.mark.parametrize(
    ("rule", "world", "reason"),
    [
        ("READ User:alice on *", {}, "it would reach all"),
        ("READ User:alice on ord*", {"others": ["dr.ordinary"]}, "also reach dr.ordinary, which is no copy"),
        ("READ User:alice on ord*", {"rename": "{topic}.dr"}, "no common beginning"),
        ("READ User:alice on ord*", {"hiding": ["dr.ord"]}, "may hide names that begin with dr.ord"),
        ("READ User:alice on g:bill*", {}, "also reach bills"),
        ("UNKNOWN User:alice on orders", {}, "does not know its kind"),
        ("READ User:alice on hidden", {"selects": "hidden".__eq__}, "may not Describe it"),
    ],
)
def test_a_rule_that_cannot_be_carried_over_alone_is_named(rule: str, world: dict[str, Any], reason: str) -> None:
    result = planned([rule], world=world)
    assert (result.to_create, result.elsewhere) == ((), {})
    assert [(one.acl, reason in one.reason) for one in result.named] == [(acl(rule), True)]


@pytest.mark.parametrize("operation", [*OPERATIONS, "ALL"])
def test_what_writes_is_withheld_and_said(operation: str) -> None:
    result = planned([f"{operation} User:alice on orders"])
    reads = operation in ("READ", "DESCRIBE", "DESCRIBE_CONFIGS")
    assert [str(one.acl) for one in result.withheld] == (
        [] if reads else [f"TOPIC orders ALLOW {operation} User:alice"]
    )
    assert bool(result.to_create) == (reads or operation == "ALL")


def test_a_denial_follows_a_prefix_to_topics_that_are_not_copied_yet() -> None:
    """Otherwise the prefix would allow them, as soon as they are copied."""
    result = planned(["READ User:* on ord*", "DENY READ User:m on ordinary", "DENY READ User:n on *"])
    denied = ["DENY READ User:m on dr.ordinary", "DENY READ User:n on dr.ord*"]
    assert result.to_create == made("READ User:* on dr.ord*", *denied)


def test_a_denial_of_one_topic_is_none_of_those_that_begin_so() -> None:
    rules = ["READ User:* on ord*", "DENY READ User:m on ord"]
    result = planned(rules, world={"names": ["ord", "orders"]})
    assert result.to_create == made("READ User:* on dr.ord*", "DENY READ User:m on dr.ord")


def test_what_is_only_on_the_target_stays_unless_it_is_to_be_removed() -> None:
    extra = ["WRITE User:bob on dr.orders", "DENY READ User:bob on dr.ord*", "READ User:x on g:billing"]
    others = ["READ User:bob on ordinary", "READ User:bob on d*", "READ User:bob on *", f"WRITE {OWN} on dr.orders"]
    rules, target = ["READ User:alice on orders"], ["READ User:alice on dr.orders", *extra, *others]
    world = {"others": ["ordinary", "dx"]}
    kept, removed = planned(rules, target, world), planned(rules, target, world, remove=True)
    assert (kept.left, kept.to_remove) == (made(*extra), ())
    assert (removed.left, removed.to_remove) == ((), made(*extra))


def test_what_concerns_no_copy_or_the_replication_itself_is_counted() -> None:
    result = planned(
        ["READ User:a on ordinary", "READ User:a on g:bills", "DENY ALL User:a on x*", f"READ {OWN} on orders"]
    )
    assert (result.to_create, result.named, result.elsewhere) == ((), (), {"GROUP": 1, "TOPIC": 3})


IMPLIED = {
    "DESCRIBE": ("READ", "WRITE", "DELETE", "ALTER"),
    "DESCRIBE_CONFIGS": ("ALTER_CONFIGS",),
}


def allows(rules: Iterable[Acl], who: str, host: str, operation: str, topic: str) -> bool:
    """As Kafka's authorizer decides (KIP-11, KIP-290): a denial counts more, and implies nothing."""
    fit = [
        rule
        for rule in rules
        if rule.principal in (who, "User:*")
        and rule.host in (host, "*")
        and (topic.startswith(rule.name) if rule.pattern == "PREFIXED" else rule.name in (topic, "*"))
    ]
    denied = any(rule.permission == "DENY" and rule.operation in (operation, "ALL") for rule in fit)
    wanted = (operation, "ALL", *IMPLIED.get(operation, ()))
    return not denied and any(rule.permission == "ALLOW" and rule.operation in wanted for rule in fit)


SOURCE_TOPICS = ("a", "ab", "abc", "b")
WHO, HOSTS = ("User:alice", "User:bob"), ("1.1.1.1", "2.2.2.2")
PATTERNS = [
    ("LITERAL", "*"),
    ("PREFIXED", "a"),
    ("PREFIXED", "ab"),
    ("PREFIXED", "r"),
    ("LITERAL", "a"),
    ("LITERAL", "ab"),
]
RULES = st.builds(
    lambda pattern, *terms: made_of("TOPIC", *pattern, *terms),
    st.sampled_from(PATTERNS),
    st.sampled_from([*WHO, "User:*"]),
    st.sampled_from([HOSTS[0], "*", "*"]),
    st.sampled_from(["READ", "READ", "ALL", "WRITE", "ALTER_CONFIGS"]),
    st.sampled_from(["ALLOW", "DENY"]),
)


@given(
    rules=st.sets(RULES, min_size=2, max_size=8),
    target=st.sets(RULES, max_size=3),
    copied=st.sets(st.sampled_from(SOURCE_TOPICS), min_size=1),
    rename=st.sampled_from(["{topic}", "r.{topic}", "{topic}.r", "{topic}{topic}"]),
    others=st.sets(st.sampled_from([*SOURCE_TOPICS, "r.a", "r.abc", "a.r", "r"])),
    principals=st.dictionaries(st.sampled_from(WHO), st.sampled_from([*WHO, "User:dave"]), max_size=3),
    writes=st.booleans(),
)
def test_nobody_may_do_more_on_the_target_than_at_the_source(
    rules: set[Acl],
    target: set[Acl],
    copied: set[str],
    rename: str,
    others: set[str],
    principals: dict[str, str],
    writes: bool,
) -> None:
    names = topics(copied, rename)
    names = topics(copied, rename, others - names.targets)
    settings = Acls(principals=principals, writes=writes, remove=True)
    result = plan(rules, target, {"TOPIC": names}, settings, [OWN])
    written = {*result.to_create, *result.present}
    back = {names.rename(name): name for name in SOURCE_TOPICS}  # also those that are copied later
    back = {there: name for there, name in back.items() if there not in names.others}
    for who, host, operation in product([*WHO, "User:dave"], HOSTS, OPERATIONS):
        same = [name for name in [*WHO, "User:dave"] if principals.get(name, name) == who] or ["User:nobody"]
        for there in {*back, *names.others}:
            may = allows(written, who, host, operation, there)
            at_source = there in back and any(allows(rules, one, host, operation, back[there]) for one in same)
            reads = operation in ("READ", "DESCRIBE", "DESCRIBE_CONFIGS")
            assert not may or (at_source and (writes or reads)), (who, host, operation, there)
            if at_source and writes and not (result.named or principals) and back[there] in copied:
                assert may, "nothing is lost"
    after = (target | set(result.to_create)) - set(result.to_remove)
    for rule in after - written:
        assert not names.on_copies_alone(rule), "what is on copies alone is as planned"
