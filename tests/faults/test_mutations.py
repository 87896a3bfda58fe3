"""An engine that is broken on purpose does not get through: otherwise the harness would prove nothing."""

from __future__ import annotations

import re

import pytest

from tests.faults import mutations
from tests.faults.rows import ROWS
from tests.faults.session import Session

CAUGHT = {  # by which row, and what it says
    "position-before-fencing": ("two-runs-without-lease", "running again cannot help|doubled"),
    "receipt-outside": ("failpoint-p2", "that the ledger does not know|doubled"),
    "watermark-before-verification": ("failpoint-p4", r"watermark \d+ > verified"),
}
SEEDS = range(2, 12, 2)  # two processes race: not every time does the broken one lose


@pytest.mark.slow
@pytest.mark.parametrize("mutation", mutations.ALL)
def test_broken_engine_is_caught(session: Session, mutation: str) -> None:
    name, says = CAUGHT[mutation]
    for seed in SEEDS:
        verdict = session.run(ROWS[name], seed, mutation)
        if verdict.outcome == "failed":
            assert any(re.search(says, problem) for problem in verdict.problems), verdict.problems
            return
    pytest.fail(f"the harness did not notice the mutation {mutation} in {len(SEEDS)} runs of {name}")
