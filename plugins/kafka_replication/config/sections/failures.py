"""The section about records that cannot be copied."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from kafka_replication.config.sections.base import Section, Whole
from kafka_replication.model.failures import FailureKind

Policy = Literal["fail", "quarantine", "skip"]
_PERCENT = re.compile(r"(\d{1,3}(?:\.\d{1,6})?)%")


def _check_percent(text: str) -> str:
    match = _PERCENT.fullmatch(text)
    if match is None or float(match[1]) > 100:
        raise ValueError("must be a number of records, or a share of the offsets such as '0.1%'")
    return text


def _kind(meaning: str) -> Any:
    return Field(default=None, description=f"The policy for {meaning}; null means that of `policy`.")


class Failures(Section):
    """The policy for records that cannot be copied, and that for some kinds of them. See docs/failed-records.md."""

    policy: Policy = Field(
        default="fail",
        description=(
            "What to do with a record that cannot be copied. `fail`: copy everything before it, then fail; nothing"
            " after it is copied. `quarantine`: write it to a quarantine topic on the target, in the same transaction"
            " as its neighbours, and go on. `skip`: record its coordinates and the reason, and go on."
        ),
    )
    too_large: Policy | None = _kind("records that are larger than the target topic takes")
    transform: Policy | None = _kind("records on which a filter or a transform fails")
    limit: Annotated[Whole, Field(ge=0)] | Annotated[str, AfterValidator(_check_percent)] = Field(
        default=10_000,
        description=(
            "Most records of each source partition that one run may quarantine or skip: a number, or a share of the"
            " offsets of the partition that it is to copy (`0.1%`, rounded up). A partition fails before more of it is"
            " set aside, and the others go on. There is no limit for all partitions of a run together."
        ),
    )

    def of(self, kind: FailureKind) -> Policy:
        """The policy for failures of this kind."""
        own: Policy | None = getattr(self, kind.value, None)
        return own or self.policy

    @property
    def policies(self) -> frozenset[Policy]:
        """All policies that can apply."""
        return frozenset(map(self.of, FailureKind))

    def most(self, offsets: int) -> int:
        """The limit in records for a partition in which a run is to copy so many offsets."""
        if isinstance(self.limit, int):
            return self.limit
        return math.ceil(offsets * float(self.limit.removesuffix("%")) / 100)
