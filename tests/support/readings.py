"""How often the driver of a run reads the ledger, looks at both clusters, plans, and decodes the stored plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import cached_property, wraps
from typing import Any

import pytest

from kafka_replication.kafka import snapshotter
from kafka_replication.ledger.entries import Verified
from kafka_replication.ledger.port import Ledger
from kafka_replication.planning import plan_codec
from kafka_replication.planning.live import Planner
from kafka_replication.runs.clusters import Clusters
from kafka_replication.targets.port import Target

Readings = Counter[str]


class CountingLedger:
    """A ledger that counts what is asked of it. Workers, and who shows progress, have ledgers of their own."""

    def __init__(self, ledger: Ledger, readings: Readings) -> None:
        self._ledger, self._readings = ledger, readings

    def view(self, *arguments: Any) -> Any:
        self._readings["view"] += 1
        return self._ledger.view(*arguments)

    def receipts(self, wanted: Mapping[Any, Any]) -> Any:
        self._readings["receipts"] += 1
        return self._ledger.receipts(wanted)

    def write(self, transaction: Any, key: Any, entry: Any) -> None:
        if isinstance(entry, Verified):
            self._readings["verified"] += 1
        self._ledger.write(transaction, key, entry)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)


class CountingTarget:
    """A target whose ledger counts."""

    def __init__(self, target: Target, readings: Readings) -> None:
        self._target, self._readings = target, readings

    @cached_property
    def ledger(self) -> CountingLedger:
        return CountingLedger(self._target.ledger, self._readings)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> Readings:
    """The numbers since the test began, or since they were cleared; what was not done has none."""
    counted, targets, target = Readings(), dict[int, CountingTarget](), Clusters.__dict__["target"]

    def counting(clusters: Clusters) -> CountingTarget:
        if id(clusters) not in targets:
            targets[id(clusters)] = CountingTarget(target.func(clusters), counted)
        return targets[id(clusters)]

    def count(owner: Any, name: str, what: str) -> None:
        call: Callable[..., Any] = getattr(owner, name)

        @wraps(call)
        def counting_call(*arguments: Any, **named: Any) -> Any:
            counted[what] += 1
            return call(*arguments, **named)

        monkeypatch.setattr(owner, name, counting_call)

    monkeypatch.setattr(Clusters, "target", property(counting))
    count(snapshotter, "take", "snapshot")
    count(Planner, "all", "plan")
    count(plan_codec, "decode", "decoded")
    return counted
