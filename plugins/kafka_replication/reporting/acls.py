"""The document of ``acls plan`` and ``acls apply``."""

from __future__ import annotations

from dataclasses import dataclass

from kafka_replication.planning.acls import AclPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramRow:
    """A SCRAM user of the source who has a right on a copy, and the ``command`` that makes it on the target, where it
    may be already (``on_target``). A password can be read nowhere.
    """

    user: str
    target_user: str
    mechanism: str
    iterations: int
    on_target: bool
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AclsDocument:
    """``acls plan``, and ``acls apply``, which has ``applied`` the plan. ``quotas`` is the command that shows those of
    the source's users, which this client cannot read.
    """

    replication: str
    applied: bool
    plan: AclPlan
    scram_users: tuple[ScramRow, ...]
    quotas: str

    def text(self) -> str:
        """The same for people."""
        made = self.plan
        signs = ("+", made.to_create), ("-", made.to_remove), ("left on the target:", made.left)
        lines = [f"{sign} {acl}" for sign, some in signs for acl in some]
        lines += [f"withheld: {one.acl}: {one.reason}" for one in made.withheld]
        lines += [f"not carried over: {one.acl}: {one.reason}" for one in made.named]
        rules = ", ".join(f"{count} of {kind}" for kind, count in made.elsewhere.items())
        lines += [f"of no copy, or the replication's own: {rules}"] if rules else []
        for row in self.scram_users:
            there = "is on the target" if row.on_target else f"is not on the target: {row.command}"
            lines.append(f"SCRAM user {row.target_user} ({row.mechanism}) {there}")
        lines.append(f"quotas are not carried over; those of the source: {self.quotas}")
        done = ("created", "removed") if self.applied else ("to create", "to remove")
        counts = zip((made.to_create, made.to_remove, made.present), (*done, "present already"), strict=True)
        return "\n".join([*lines, ", ".join(f"{len(some)} {what}" for some, what in counts)])
