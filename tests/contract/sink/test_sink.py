"""The conformance suite of sinks, on Kafka's; and broken sinks, which it must notice."""

from __future__ import annotations

import pytest

from tests.contract.copy_case import CopyCase
from tests.contract.sink.broken import ALL, Broken, BrokenSink
from tests.contract.sink.checks import CHECKS, Check


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_sink(check: Check, copy_case: CopyCase) -> None:
    check(copy_case)


@pytest.mark.parametrize("broken", ALL, ids=lambda broken: getattr(broken.session, "__name__", "?"))
def test_a_broken_sink_is_noticed(broken: Broken, copy_case: CopyCase) -> None:
    copy_case.sink = BrokenSink(copy_case, broken)
    with pytest.raises(AssertionError):
        broken.noticed_by(copy_case)
