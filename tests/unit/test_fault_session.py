"""The fault harness ends, too, if one of the processes that work side by side dies."""

from __future__ import annotations

import os
import signal

import pytest

from tests.faults.session import side_by_side


def die_if_odd(number: int) -> int:
    if number % 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_a_process_that_dies_is_told() -> None:
    assert side_by_side(die_if_odd, [0, 2]) == [0, 2]
    with pytest.raises(SystemExit, match="one of the processes died"):
        side_by_side(die_if_odd, [0, 1])
