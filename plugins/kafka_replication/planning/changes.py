"""Notes about a filter or transform that is not the one that earlier records were copied with. Pure."""

from __future__ import annotations

from kafka_replication.ledger.entries import Transform, how
from kafka_replication.ledger.view import LedgerView
from kafka_replication.planning.plan import Plan


def changes(plan: Plan, ledger: LedgerView, today: Transform | None) -> tuple[str, ...]:
    """One note for each earlier filter or transform that the records of this plan follow, if it is not ``today``'s.

    The position stores the one that the last chunk was copied with. So the first run with a new one notes the change,
    and later runs do not.
    """
    earlier: dict[Transform | None, list[str]] = {}
    for planned in plan.to_copy:
        position = ledger.positions.get(planned.key)
        if position is not None and position.coverage and position.transform != today:
            earlier.setdefault(position.transform, []).append(f"{planned.key.source} from {planned.position}")
    return tuple(
        f"filter or transform changed: records are copied {how(today)} now, earlier ones were copied {how(before)}"
        f" ({', '.join(sorted(places)[:5])}{' and others' if len(places) > 5 else ''})"
        for before, places in earlier.items()
    )
