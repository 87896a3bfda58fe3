"""The delivery profiles: what a replication promises about the records that it writes. See docs/delivery.md."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

Delivery = Literal["exactly_once", "at_least_once", "leader_ack", "fire_and_forget"]
EXACTLY_ONCE: Final = "exactly_once"
FIRE_AND_FORGET: Final = "fire_and_forget"
# The profiles, the strongest first.
PROFILES: Final[tuple[Delivery, ...]] = ("exactly_once", "at_least_once", "leader_ack", "fire_and_forget")
# The profiles in which records that were sent may be missing on the target.
LOSSY: Final[frozenset[Delivery]] = frozenset({"leader_ack", "fire_and_forget"})


def weakest_delivery(profiles: Iterable[Delivery]) -> Delivery:
    """The weakest of these profiles; ``exactly_once`` if there are none."""
    return max(profiles, key=PROFILES.index, default=EXACTLY_ONCE)
