"""What a row of the fault table is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from kafka_replication.model.choices import EXACTLY_ONCE
from tests.faults.bench import Bench
from tests.faults.load import Load
from tests.faults.profiles import Profile
from tests.faults.trial import Trial
from tests.support.checker import Record


@dataclass(frozen=True)
class Row:
    """``inject`` starts runs and does the fault. Then running again heals it, or fails with an error that ``expected`` (a pattern) names.

    ``own_load`` rows damage the source's data and get a topic of their own. ``ignore`` names what the fault itself brings about.
    ``refused`` are the records that the fault makes the target refuse: if they are set aside, the row heals instead.
    ``sampled`` is off where the fault changes what the sampler reads, as it does without transactions if only they fence
    it (``fenced_by_transactions``). ``load`` makes a load of another shape, ``bench`` names other clusters.
    """

    name: str
    inject: Callable[[Trial], None]
    kind: Literal["core", "other"] = "other"
    expected: str = ""
    own_load: bool = False
    ignore: tuple[str, ...] = ()
    sampled: bool = True
    load: Callable[[Bench, str, int], Load] | None = None
    bench: Callable[[Bench], Bench] = lambda bench: bench
    refused: Callable[[Record], bool] | None = None
    fenced_by_transactions: bool = False

    def under(self, profile: Profile) -> Row:
        """The row as it has to end with this profile."""
        return replace(
            self,
            expected="" if self.refused and profile.aside else self.expected,
            sampled=self.sampled and (profile.delivery == EXACTLY_ONCE or not self.fenced_by_transactions),
        )
