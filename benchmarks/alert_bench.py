"""What `time_to_alert` measures with: a replication, its clusters, and the servers where alerts arrive."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # re-exported without saying so

from benchmarks.workload import send
from kafka_replication.store import open_store
from stack.kafka_cluster import KafkaCluster
from tests.support.received import Inbox

NAME = "time-to-alert"
TOPIC = "bench"
PARTITIONS = 20
RECORDS = 100_000
PATIENCE = 1800.0


@dataclass
class Bench:
    """One replication, its clusters, its inbox and the processes that this program started."""

    folder: Path
    source: KafkaCluster
    target: KafkaCluster
    received: Inbox
    stalled_after: int
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def store(self) -> Path:
        return self.folder / "store.db"

    @property
    def environment(self) -> dict[str, str]:
        clusters = {"SOURCE": self.source, "TARGET": self.target}
        kafka = {
            f"AIRFLOW_CONN_{name}": json.dumps(
                {"conn_type": "kafka", "extra": {"bootstrap.servers": cluster.bootstrap}}
            )
            for name, cluster in clusters.items()
        }
        own = {
            "AIRFLOW_CONN_ONCALL": self.received.connection,
            "KAFKA_REPLICATION_STORE_URL": f"sqlite:///{self.store}?timeout=5",
        }
        return {**os.environ, **kafka, **own}

    def file(self) -> Path:
        path = self.folder / f"{NAME}.yaml"
        path.write_text(
            json.dumps({**self.document(), "source": {"connection": "source"}, "target": {"connection": "target"}})
        )
        return path

    def document(self) -> dict[str, Any]:
        """The replication without its connections."""
        return {
            "name": NAME,
            "topics": {"include": [TOPIC]},
            "alerts": {"apprise": "oncall", "stalled_after": self.stalled_after},
            "spark": {"parallelism": 2},
            "copy": {"chunk_records": 250, "transaction_timeout": 60},
            **self.settings,
        }

    def command(self, *arguments: str) -> subprocess.Popen[bytes]:
        log = (self.folder / f"{arguments[0]}.log").open("ab")
        line = [sys.executable, "-m", "kafka_replication.cli", arguments[0], str(self.file()), *arguments[1:]]
        return subprocess.Popen(line, env=self.environment, stdout=log, stderr=log, start_new_session=True)

    def run(self) -> int:
        """A whole run; its exit code."""
        return self.command("run").wait()

    def run_in_mid_copy(self) -> subprocess.Popen[bytes]:
        """A run that has committed something and has more to do."""
        run = self.command("run")
        await_(lambda: run.poll() is not None or self.copied() > 0, "a first chunk")
        if run.poll() is not None:
            raise SystemExit(f"the run ended before its fault; see {self.folder}/run.log")
        return run

    def copied(self) -> int:
        """Records that the newest run has committed, while it is at work."""
        with closing(open_store(f"sqlite:///{self.store}")) as store:
            runs = store.runs(NAME, 1)
            document = json.loads(runs[0].progress or "{}") if runs and runs[0].state == "planned" else {}
            return int(document.get("records", 0))

    def ended(self) -> int:
        """How many runs have ended well."""
        with closing(open_store(f"sqlite:///{self.store}")) as store:
            return sum(run.state in ("done", "nothing_to_do") for run in store.runs(NAME, 10))


@dataclass(frozen=True)
class Times:
    """Seconds from the fault, and from its mending, to the arrival of the message by mail and by webhook; and the first
    line of the alert. ``within``: seconds that the alert may take, where no stall has to be waited for.
    """

    said: str
    mail: float
    webhook: float
    healed: float
    alerts: int
    healings: int
    within: float = math.inf


def measure(
    bench: Bench, fault: Callable[[], float], mend: Callable[[], float], *, watched_by_airflow: bool = False
) -> Times:
    """``fault`` and ``mend`` return the moment from which to count, on the monotonic clock."""
    mails, posts = bench.received.mails, bench.received.posts
    mails.clear()
    posts.clear()
    with nullcontext() if watched_by_airflow else watching(bench):
        since = fault()
        await_(lambda: bool(mails and posts), "an alert")
        first = mails[0].at - since, posts[0].at - since
        mended = mend()
        await_(lambda: any(post.title.startswith("OVER") for post in posts), "that it healed")
        await_(lambda: len(mails) == len(posts), "the mails")
    healed = next(post.at for post in posts if post.title.startswith("OVER")) - mended
    healings = sum(post.title.startswith("OVER") for post in posts)
    return Times(posts[0].title, *first, healed=max(0.0, healed), alerts=len(posts) - healings, healings=healings)


@contextmanager
def watching(bench: Bench) -> Iterator[None]:
    watch = bench.command("watch")
    try:
        yield
    finally:
        end(watch)


def fill(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50})
    send(producer, TOPIC, PARTITIONS, ((b"k%08d" % number, b"v" * 100) for number in range(RECORDS)))


def end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait()


def await_(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"waited {PATIENCE:.0f} s in vain for {what}")
        time.sleep(0.1)
