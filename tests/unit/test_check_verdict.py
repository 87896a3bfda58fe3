"""The last line of `check`."""

from __future__ import annotations

import pytest

from kafka_replication.model.trouble import Trouble
from kafka_replication.reporting.table import verdict

ERROR, WARNING = Trouble("error", "at", "what", "do"), Trouble("warning", "at", "what", "do")


@pytest.mark.parametrize(
    ("findings", "said"),
    [
        ([], "ok: no findings"),
        ([WARNING], "ok: a run would refuse nothing; 1 warning"),
        ([WARNING, WARNING], "ok: a run would refuse nothing; 2 warnings"),
        ([ERROR, WARNING], "not ok: 1 error, 1 warning"),
    ],
)
def test_it_says_ok_only_if_nothing_would_be_refused(findings: list[Trouble], said: str) -> None:
    assert verdict(findings) == said
