"""Kafka's own command-line tools, for requests that the client library does not have."""

from __future__ import annotations

import subprocess

from stack.artifacts import kafka_jars
from stack.java import java
from tests.faults.trial import TrialFailed


def run_tool(tool: str, *arguments: str) -> None:
    """Run a tool by the name of its Java class. Raises TrialFailed if it says that something went wrong."""
    command = [java(), "-XX:TieredStopAtLevel=1", "-cp", f"{kafka_jars()}/*", tool, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode:
        raise TrialFailed(f"{tool} failed: {done.stdout}{done.stderr}")
