"""Faults of our own processes: killed, frozen, doubled."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from functools import partial

import psutil

from kafka_replication.model.choices import EXACTLY_ONCE
from kafka_replication.runtime.events import Event
from tests.faults import profiles
from tests.faults.attempt import Attempt
from tests.faults.load import PARTITIONS
from tests.faults.row import Row
from tests.faults.trial import Trial, TrialFailed
from tests.support.processes import command, is_driver, is_worker

SPARK = {"spark.task.maxFailures": "4"}
LOCAL = "local[2,4]"  # four attempts a task
CLUSTER = "local-cluster[2,3,1024]"  # two executors, JVMs of their own


def run_killed(trial: Trial) -> None:
    """The process of the whole run, in the middle of its copy."""
    run = trial.start()
    trial.middle(run)
    run.kill()
    trial.note("killed the run")


def run_killed_anywhere(trial: Trial) -> None:
    """The same at any moment between the start and the report."""
    run = trial.start()
    run.await_line(str(Event.COPY_STARTED))
    time.sleep(trial.dice.random() * 12)
    run.kill()
    trial.note(f"killed the run after {run.chunks} chunks: {run.end()}")


def everything_killed(trial: Trial) -> None:
    """The run and every broker of both clusters at once, as a machine that loses power."""
    run = trial.start()
    trial.middle(run)
    trial.note("killing everything")
    run.kill()
    for side in trial.bench.sides:
        for node in side.nodes:
            node.kill()
    for side in trial.bench.sides:
        side.start()
    trial.note("everything but the run is back")


def failpoint(point: str, most: int, trial: Trial) -> None:
    """The run dies exactly there, at a random turn."""
    run = trial.start(f"{point}:{trial.dice.randrange(1, most + 1)}")
    if run.end() != "killed":
        raise TrialFailed(f"the failpoint was not reached: {run.end()} {run.errors}")


def zombie(trial: Trial) -> None:
    """A run stands still longer than its lease, another one takes over and finishes, then the first one wakes."""
    trial.copy["transaction_timeout"] = 30  # longer than most of the sleep: not its end, but the other run fences
    frozen = trial.sleeper()
    other = trial.start()
    if trial.dice.randrange(4):
        outcome = trial.finish(other)
        if outcome != "done":
            raise TrialFailed(f"the run that took over ended with {outcome}: {other.errors}")
    else:  # wake it while the other one is at work
        other.await_chunks(trial.dice.randrange(1, 10))
    frozen.kill(signal.SIGCONT)
    trial.note(f"woke run {frozen.number}")
    trial.finish(frozen)
    trial.finish(other)


def comes_back_late(trial: Trial) -> None:
    """A run stands still just before a commit (of the opening, a chunk, or what is verified) until another run has
    done all its work; then it wakes. Without transactions nothing fences what it writes: an older position, which the next
    run names, until the topic is created again and reset.
    """
    trial.copy["transaction_timeout"] = 120  # the other run fences, not the end of the transaction
    late, gate = trial.at_gate("P2", 25)
    trial.freeze(late)
    gate.unlink()
    other = trial.start()
    if (outcome := trial.finish(other)) != "done":
        raise TrialFailed(f"the run that took over ended with {outcome}: {other.errors}")
    late.kill(signal.SIGCONT)
    if (outcome := trial.finish(late)) != "failed":
        raise TrialFailed(f"the run that came back late ended with {outcome}")
    if profiles.current().delivery != EXACTLY_ONCE:
        _reset(trial)


def _reset(trial: Trial) -> None:
    run = trial.start()
    if trial.finish(run) != "failed" or not all("the ledger contradicts itself" in error for error in run.errors):
        raise TrialFailed(f"an older position over a newer one was to be named: {run.errors}")
    trial.forgive(run)
    trial.bench.target.direct.delete(trial.target_topic)
    trial.job["reset"] = True
    outcome = trial.finish(trial.start())
    del trial.job["reset"]
    if outcome != "reset":
        raise TrialFailed(f"the reset of the topic ended with {outcome}")


def two_runs(trial: Trial) -> None:
    """The lease makes one wait for the other."""
    first = trial.start()
    time.sleep(trial.dice.random() * 3)
    second = trial.start()
    outcomes = [trial.finish(first), trial.finish(second)]
    if not set(outcomes) <= {"done", "nothing_to_do"}:
        raise TrialFailed(f"two runs at once ended with {outcomes}")


def two_runs_without_lease(trial: Trial) -> None:
    """As if the lease did not hold: the other run has a store of its own. One fences the other, and neither for ever."""
    trial.copy["transaction_timeout"] = 30
    first = trial.start()
    trial.middle(first)
    second = trial.start(store=trial.folder / "other.db")
    trial.finish(first)
    trial.finish(second)


def clock_moved(trial: Trial) -> None:
    """One of two hosts is off by a day."""
    trial.job["clock"] = trial.dice.choice([-86_400, 86_400])
    frozen = trial.sleeper()
    trial.job["clock"] = 0
    trial.finish(trial.start())
    frozen.kill(signal.SIGCONT)
    trial.finish(frozen)


def start_on_spark(trial: Trial, conf: Mapping[str, str] = SPARK, master: str = LOCAL, failpoint: str = "") -> Attempt:
    """A run whose job is real Spark's, each range in a Python worker; those that heal it need none."""
    ours, trial.job = trial.job, trial.job | {"spark": dict(conf), "master": master}
    try:
        return trial.start(failpoint)
    finally:
        trial.job = ours


def spark(kill: Callable[[Trial, Attempt], None], trial: Trial, master: str = LOCAL) -> None:
    """The same with real Spark."""
    run = start_on_spark(trial, master=master)
    (trial.middle if master == LOCAL else trial.middle_by_target)(run)
    kill(trial, run)
    trial.finish(run)


def _children(run: Attempt, wanted: Callable[[psutil.Process], bool]) -> list[psutil.Process]:
    found = [each for each in psutil.Process(run.process.pid).children(recursive=True) if wanted(each)]
    if not found:
        raise TrialFailed("there is no such process of Spark's")
    return found


def worker(trial: Trial, run: Attempt) -> None:
    found = _children(run, is_worker)
    victim = trial.dice.choice(sorted(found, key=lambda p: p.pid))
    trial.note(f"killing a Python worker of {len(found)}")
    victim.kill()


def poison(trial: Trial) -> None:
    """Every worker that begins one range is killed, as by the kernel when memory is short. The others are done in the same run."""
    poisoned = trial.dice.randrange(PARTITIONS)
    run = start_on_spark(trial, failpoint=f"W@{trial.load.topic}-{poisoned}")
    if trial.finish(run) != "failed":
        raise TrialFailed("the worker of one range was to be killed each time")
    watermarks = trial.watermarks()
    behind = [partition for partition, end in trial.load.ends.items() if watermarks.get(partition) != end]
    if behind != [poisoned] or len(run.errors) != 1 or f"{trial.load.topic}-{poisoned}:" not in run.errors[0]:
        raise TrialFailed(f"only partition {poisoned} was to fail, by name: {behind} are behind, {run.errors}")


def executor(trial: Trial, run: Attempt) -> None:
    found = _children(run, lambda p: is_jvm(p) and "CoarseGrainedExecutorBackend" in command(p))
    trial.note(f"killing an executor of {len(found)}")
    trial.dice.choice(sorted(found, key=lambda p: p.pid)).kill()


def driver(trial: Trial, run: Attempt) -> None:
    """Its Python or its JVM; in local mode the executor lives in the latter."""
    kind, wanted = (("Python", is_python_driver), ("JVM", is_jvm))[trial.dice.randrange(2)]
    trial.note(f"killing the driver's {kind}")
    trial.dice.choice(sorted(_children(run, wanted), key=lambda p: p.pid)).kill()


def is_jvm(process: psutil.Process) -> bool:
    return bool(process.name() == "java")


def is_python_driver(process: psutil.Process) -> bool:
    """The one that Spark started, or the one in local mode that has its place."""
    return process.name().startswith("python") and ("replicate_ranges.py" in command(process) or is_driver(process))


def submitter(trial: Trial, run: Attempt) -> None:
    """The process that submitted, as when Airflow's task process is killed: Spark has to notice by itself."""
    trial.note("killing the run's own process")
    run.kill()
    if left := trial.leftovers(30):
        raise TrialFailed(f"Spark goes on without the run that submitted it: {left}")


def speculation(trial: Trial) -> None:
    """Spark runs what seems slow a second time elsewhere: two copiers of one range."""
    # Each range is a stage of one task, which Spark compares with nothing but this threshold.
    often = {"interval": "50ms", "minTaskRuntime": "100ms", "task.duration.threshold": "200ms"}
    conf = {"spark.speculation": "true", **{f"spark.speculation.{name}": value for name, value in often.items()}}
    conf |= {"spark.log.level": "INFO"}  # it says which task it takes for slow
    run = start_on_spark(trial, SPARK | conf, CLUSTER)
    trial.finish(run)
    if "as speculatable" not in run.text:
        raise TrialFailed("Spark ran nothing twice")


ROWS = (
    Row("run-killed", run_killed, "core"),
    Row("run-killed-anywhere", run_killed_anywhere, "core"),
    Row("everything-killed", everything_killed, "core"),
    Row("zombie", zombie, "core"),
    Row("comes-back-late", comes_back_late, "core", fenced_by_transactions=True),
    Row("two-runs-at-once", two_runs, "core"),
    Row("two-runs-without-lease", two_runs_without_lease, "core"),
    *(
        Row(f"failpoint-{point.lower()}", partial(failpoint, point, most), "core")
        for point, most in (("P0", 6), ("P1", 30), ("P2", 30), ("P3", 30), ("P4", 1), ("P5", 1))
    ),
    Row("spark-worker-killed", partial(spark, worker), "core"),
    Row("spark-worker-killed-each-time", poison, "core"),
    Row("spark-executor-killed", partial(spark, executor, master=CLUSTER), "core"),
    Row("spark-driver-killed", partial(spark, driver), "core"),
    Row("spark-submitter-killed", partial(spark, submitter), "core"),
    Row("spark-speculation", speculation),
    Row("clock-moved-a-day", clock_moved),
)
