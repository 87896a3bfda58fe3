"""One bench for all tests here: starting it takes longer than a fault."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.session import Session, open_session


@pytest.fixture(scope="package")
def session(stack_folder: Path) -> Iterator[Session]:
    with open_session(stack_folder / "faults") as opened:
        yield opened
