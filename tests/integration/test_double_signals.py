"""Two signals at once, at any moment of a run: it ends, in order, and whatever it has begun is finished by the next run.

``DOUBLE_SIGNALS`` says how many runs there are, ``DOUBLE_SIGNALS_SEED`` what their moments are drawn from.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stack.ports import LOOPBACK
from tests.support.command_line import begun
from tests.support.scenario import Scenario, numbered
from tests.support.waiting import wait_until

COUNT = int(os.environ.get("DOUBLE_SIGNALS", "10"))
AT_ONCE, LONGEST = 5, 3.0  # runs; seconds until the signals
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Processes inherit that each signal ends them, also where it is ignored here, as SIGHUP is under nohup."""
    before = [signal.signal(number, signal.SIG_DFL) for number in SIGNALS]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in zip(SIGNALS, before, strict=True):
        signal.signal(number, handler)


@pytest.fixture
def silent() -> Iterator[str]:
    """A Spark master that takes connections and never answers, so that a run that comes so far waits."""
    with socket.create_server((LOOPBACK, 0), backlog=1024) as server:
        yield json.dumps({"conn_type": "spark", "host": f"spark://{LOOPBACK}", "port": server.getsockname()[1]})


def catches(pid: int, number: signal.Signals) -> bool:
    """The process has a handler of its own for the signal; or has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return True
    [mask] = [line.split()[1] for line in lines if line.startswith("SigCgt:")]
    return bool(int(mask, 16) >> (number - 1) & 1)


def interrupted(scene: Scenario, master: str, dice: random.Random) -> int:
    pair = dice.sample(SIGNALS, 2)
    process = begun(scene, "run", AIRFLOW_CONN_SPARK_DEFAULT=master)
    wait_until(lambda: catches(process.pid, signal.SIGTERM))
    moment = dice.random() * LONGEST
    time.sleep(moment)
    for number in pair:
        process.send_signal(number)
    wait_until(lambda: process.poll() is not None)
    _, err = process.communicate()
    told = f"{[one.name for one in pair]} after {moment:.3f} s: exit {process.returncode}\n{err}"
    # Nothing else: it was interrupted, by the first or by the second one. Python takes its handlers back in its last
    # moments, which the second one meets if this process had to wait before it could send it.
    good = {128 + number for number in pair} | {-pair[1]}
    assert "Traceback" not in err and process.returncode in good, told
    return process.returncode or 0


@pytest.mark.slow
@pytest.mark.usefixtures("interruptible")
def test_a_run_that_gets_two_signals_at_once_ends_in_order(scene: Scenario, silent: str) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(20))
    seed = os.environ.get("DOUBLE_SIGNALS_SEED", str(random.randrange(10**6)))
    began = time.monotonic()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        turns = [pool.submit(interrupted, scene, silent, random.Random(f"{seed}-{turn}")) for turn in range(COUNT)]
        failed = [str(error) for turn in turns if (error := turn.exception())]
    ended = Counter(turn.result() for turn in turns if not turn.exception())
    print(f"seed {seed}: {dict(ended)} in {time.monotonic() - began:.0f} s, {len(failed)} failed")
    assert not failed, f"seed {seed}: {len(failed)} of {COUNT}:\n" + "\n".join(failed)
    assert scene.run().outcome == "done"
    scene.assert_copied()
