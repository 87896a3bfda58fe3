"""Pure: the rights of the source that the target gets on its copies. Nobody may do more there than at the source.

A rule that allows and is not carried over takes a right away; one that denies gives one, where another rule allows. So
a denial is written wherever a rule that allows is written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from kafka_replication.config.topics import Acls

TOPIC, GROUP, LITERAL, PREFIXED, UNKNOWN = "TOPIC", "GROUP", "LITERAL", "PREFIXED", "UNKNOWN"
ALLOW, DENY, ALL, ANY, EVERYBODY = "ALLOW", "DENY", "ALL", "*", "User:*"
# READ includes DESCRIBE (Kafka, "Authorization and ACLs"). Brokers before 4.0 know no settings of a group.
_READS = frozenset({"READ", "DESCRIBE", "DESCRIBE_CONFIGS"})
_READS_OF_ALL = {TOPIC: ("READ", "DESCRIBE_CONFIGS"), GROUP: ("READ",)}


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class Acl:
    """One rule of a cluster, in the words of ``kafka-acls.sh --list``. A word that this client does not know is
    ``UNKNOWN``.
    """

    resource: str  # TOPIC, GROUP, TRANSACTIONAL_ID, CLUSTER
    pattern: str  # LITERAL, of which the name * means all; PREFIXED
    name: str
    principal: str  # User:* is everybody
    host: str  # * is every host
    operation: str
    permission: str  # ALLOW or DENY

    @property
    def beginning(self) -> str | None:
        """The beginning of the names that it reaches; None if it reaches one name."""
        if self.pattern == PREFIXED:
            return self.name
        return "" if self.name == ANY else None

    @property
    def is_known(self) -> bool:
        return UNKNOWN not in (self.resource, self.pattern, self.operation, self.permission)

    def reaches(self, name: str) -> bool:
        return name == self.name if self.beginning is None else name.startswith(self.beginning)

    def covers(self, other: Acl) -> bool:
        """True if it reaches all that the other one reaches."""
        return self.reaches(other.name) and (self.beginning is not None or other.beginning is None)

    def __str__(self) -> str:
        """``TOPIC ord* ALLOW READ User:alice``, with the host if it is not every host."""
        host = "" if self.host == ANY else f" from {self.host}"
        star = "*" if self.pattern == PREFIXED else ""
        return f"{self.resource} {self.name}{star} {self.permission} {self.operation} {self.principal}{host}"


@dataclass(frozen=True, slots=True)
class NotCarried:
    """A rule of the source that the target does not get, or not as it is, and the reason."""

    acl: Acl
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AclPlan:
    """The rules of the target on its copies. ``withheld`` rules need ``acls.writes``; ``named`` ones a person.

    ``left`` rules of the target are not at the source, and stay without ``acls.remove``; ``elsewhere`` counts rules of
    the source that concern no copy, or are the replication's own, by the kind of their resource. ``principals``: of the
    source, each with its name on the target.
    """

    to_create: tuple[Acl, ...] = ()
    present: tuple[Acl, ...] = ()
    to_remove: tuple[Acl, ...] = ()
    left: tuple[Acl, ...] = ()
    withheld: tuple[NotCarried, ...] = ()
    named: tuple[NotCarried, ...] = ()
    elsewhere: Mapping[str, int] = field(default_factory=dict)
    principals: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Copied:
    """The copied topics, or groups, by their names at the source and on the target.

    ``rename`` gives the target's name of any name. The target has ``others``, too, which are no copies, and may have
    more that it does not show: names with a beginning in ``hiding``. ``selects``: true for a name that would be copied
    if it were seen at the source.
    """

    names: Mapping[str, str]
    rename: Callable[[str], str]
    others: Collection[str] = ()
    hiding: Collection[str] = ()
    selects: Callable[[str], bool] = lambda name: False

    @cached_property
    def targets(self) -> frozenset[str]:
        return frozenset(self.names.values())

    def why_more(self, beginning: str) -> str:
        """The reason why a rule for this beginning of target names would not reach copies alone; empty if it would."""
        if not beginning:
            return "on the target it would reach all, not only copies"
        if other := sorted(name for name in self.others if name.startswith(beginning)):
            more = f" and {len(other) - 1} more" if other[1:] else ""
            return f"on the target it would also reach {other[0]}{more}, which is no copy"
        if beginning in self.hiding:
            return f"the target may hide names that begin with {beginning} from this client: grant it Describe on these"
        return ""

    def why_not(self, acl: Acl) -> str:
        """The reason why no rule of the target is the same as this one; empty if there is one."""
        if acl.beginning is None:
            return ""
        there = self.rename(acl.beginning) if acl.beginning else ""
        if any(target.startswith(there) != acl.reaches(name) for name, target in self.names.items()):
            return "topics.rename gives what it reaches no common beginning that other copies do not have"
        return self.why_more(there)

    def reached(self, acl: Acl) -> bool:
        return acl.name in self.names if acl.beginning is None else any(map(acl.reaches, self.names))

    def concerned_by(self, acl: Acl) -> bool:
        """True for a rule of the source that reaches a copied name, or one that would be copied if it were seen."""
        return self.reached(acl) or (acl.beginning is None and self.selects(acl.name))

    def on_copies_alone(self, acl: Acl) -> bool:
        """True for a rule of the target that reaches copies and nothing else."""
        if acl.beginning is None:
            return acl.name in self.targets
        return any(map(acl.reaches, self.targets)) and not self.why_more(acl.beginning)


def plan(
    source: Iterable[Acl], target: Collection[Acl], copied: Mapping[str, Copied], settings: Acls, own: Collection[str]
) -> AclPlan:
    """The plan for these rules of both clusters. ``copied`` by the kind of resource; ``own`` are the principals of the
    replication itself: what it may do is not carried over, and stays.
    """
    rules = sorted(source)
    wanted, principals, elsewhere = set[Acl](), dict[str, str](), Counter[str]()
    withheld, named = list[NotCarried](), list[NotCarried]()
    regions = {kind: _regions(kind, rules, names) for kind, names in copied.items()}
    for acl in rules:
        names, principal = copied.get(acl.resource), settings.principals.get(acl.principal, acl.principal)
        made = set[Acl]()
        if not acl.is_known:
            named.append(NotCarried(acl, "this client does not know its kind: kafka-acls.sh --list shows it"))
        elif names and acl.permission == DENY:
            made = {replace(each, principal=principal) for each in _denials(acl, names, regions[acl.resource])}
            elsewhere[acl.resource] += not made
        elif names is None or acl.principal in own or not names.concerned_by(acl):
            elsewhere[acl.resource] += 1
        elif not names.reached(acl):
            reason = "the topic does not exist at the source, or its connection may not Describe it"
            named.append(NotCarried(acl, reason))
        elif reason := names.why_not(acl):
            named.append(NotCarried(acl, reason))
        else:
            operations, reason = _allowed(acl, writes=settings.writes)
            place = replace(acl, name=names.rename(acl.name), principal=principal)
            made = {replace(place, operation=operation) for operation in operations}
            withheld += [NotCarried(acl, reason)] if reason else []
        wanted |= made
        if made and acl.permission == ALLOW:
            principals[acl.principal] = principal
    ours = {acl for acl in target if (names := copied.get(acl.resource)) and names.on_copies_alone(acl)}
    surplus = tuple(sorted(acl for acl in ours - wanted if acl.is_known and acl.principal not in own))
    return AclPlan(
        to_create=tuple(sorted(wanted.difference(target))),
        present=tuple(sorted(wanted.intersection(target))),
        to_remove=surplus if settings.remove else (),
        left=() if settings.remove else surplus,
        withheld=tuple(withheld),
        named=tuple(named),
        elsewhere={kind: count for kind, count in sorted(elsewhere.items()) if count},
        principals=principals,
    )


def _allowed(acl: Acl, *, writes: bool) -> tuple[Collection[str], str]:
    """The operations of a rule that allows which the target gets, and why it does not get the rule as it is."""
    if writes or acl.operation in _READS:
        return (acl.operation,), ""
    operations = _READS_OF_ALL[acl.resource] if acl.operation == ALL else ()
    return operations, f"acls.writes is false: {' and '.join(operations) or 'nothing'} of it is carried over"


def _regions(kind: str, rules: Iterable[Acl], names: Copied) -> list[Acl]:
    """Rules that each reach a part of the copies, all of them together: for each beginning that a rule of the source
    has and that can be carried over, and for each name.
    """
    prefixed = (acl for acl in rules if (acl.resource, acl.pattern) == (kind, PREFIXED))
    beginnings = {acl.name for acl in prefixed if names.reached(acl) and not names.why_not(acl)}
    patterns = [*((PREFIXED, name) for name in sorted(beginnings)), *((LITERAL, name) for name in sorted(names.names))]
    rest = dict.fromkeys(("principal", "host", "operation", "permission"), "")
    return [Acl(resource=kind, pattern=pattern, name=name, **rest) for pattern, name in patterns]


def _denials(acl: Acl, names: Copied, regions: Iterable[Acl]) -> Iterator[Acl]:
    """Rules of the target that deny the same on all copies that this one reaches, and on nothing else.

    One that reaches copies alone stays as it is. Another one, for all topics for example, becomes its part in each
    region.
    """
    done = list[Acl]()
    for region in regions:
        if any(part.covers(region) for part in done):
            continue
        if acl.covers(region):
            part = replace(acl, pattern=region.pattern, name=region.name)
        elif region.covers(acl) and not names.why_not(acl):
            part = acl
        else:
            continue
        done += [part] if part.beginning is not None else []
        yield replace(part, name=names.rename(part.name))
