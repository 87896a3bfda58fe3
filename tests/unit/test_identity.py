"""A process that is gone is told from one that runs, and from one of which nothing is known."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from kafka_replication.runtime.identity import IDENTITY, ProcessIdentity

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux names where a pid counts")


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends when its input does."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as one:
        yield one


def test_a_process_that_runs_is_not_gone(process: subprocess.Popen[bytes]) -> None:
    assert not ProcessIdentity.of(process.pid).is_gone()
    assert not ProcessIdentity.own().is_gone()


def test_a_process_that_was_killed_is_gone(process: subprocess.Popen[bytes]) -> None:
    """Even before its parent has asked for its end."""
    identity = ProcessIdentity.of(process.pid)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert identity.is_gone()
    process.wait()
    assert identity.is_gone()


def test_another_process_with_the_same_pid_is_not_the_same(process: subprocess.Popen[bytes]) -> None:
    identity = ProcessIdentity.of(process.pid)
    assert replace(identity, started=identity.started - 60).is_gone()


@pytest.mark.parametrize("elsewhere", [{"host": "other"}, {"pid_space": "other"}, {"pid_space": ""}])
def test_nothing_is_known_of_a_process_elsewhere(process: subprocess.Popen[bytes], elsewhere: dict[str, Any]) -> None:
    """Another host, another container with the same host name, the same host before it was started anew."""
    identity = ProcessIdentity.of(process.pid)
    process.kill()
    process.wait()
    assert identity.is_gone()
    assert not replace(identity, **elsewhere).is_gone()


def test_an_identity_that_an_older_version_stored_says_nothing() -> None:
    assert not IDENTITY.validate_json('{"host": "h", "pid": 1, "started": 5.0}').is_gone()
