"""A short selection of the fault table, one run a row; ``make faults`` runs all of it many times."""

from __future__ import annotations

import os

import pytest

from tests.faults.rows import ROWS
from tests.faults.session import Session

SEED = int(os.environ.get("FAULT_SEED", "2"))
SELECTION = (
    "target-endtxn-answer-lost",
    "zombie",
    "target-broker-killed",
    "target-coordinator-killed",
    "two-runs-at-once",
    "failpoint-p1",
    "failpoint-p2",
    "failpoint-p3",
    "source-retention-before",
    "opensearch-commit-answer-lost",
)


@pytest.mark.slow
@pytest.mark.parametrize("name", SELECTION)
def test_fault(session: Session, name: str) -> None:
    verdict = session.run(ROWS[name], SEED)
    assert not verdict.problems, f"FAULT_ONLY={name} FAULT_SEED={SEED} FAULT_RUNS=1 make faults: {verdict.problems}"
    assert verdict.outcome == ("refused" if ROWS[name].expected else "healed")
    assert verdict.samples > 0 or not ROWS[name].sampled
