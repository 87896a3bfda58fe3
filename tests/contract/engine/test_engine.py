"""The conformance suite of copy engines, on each of them; and broken engines, which it must notice."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_replication.kafka.record_engine import ENGINES
from tests.contract.copy_case import CopyCase
from tests.contract.engine.broken import ALL, BrokenEngine
from tests.contract.engine.checks import CHECKS, Check
from tests.support.scenario import Cluster


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_engine(check: Check, name: str, kafka_sides: tuple[Cluster, Cluster]) -> None:
    check(CopyCase(*kafka_sides, engine_name=name))


@pytest.mark.parametrize(("broken", "noticed_by"), ALL, ids=lambda part: getattr(part, "__name__", "?"))
def test_a_broken_engine_is_noticed(broken: Any, noticed_by: Check, copy_case: CopyCase) -> None:
    copy_case.engine = BrokenEngine(copy_case.engine, broken)
    with pytest.raises(AssertionError):
        noticed_by(copy_case)
