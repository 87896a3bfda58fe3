"""One run of Spark in local mode that only loads the classes which every run needs, so that Java can archive them.

``python -m kafka_replication.spark.training`` makes the archive (``make install`` does so).
"""

from __future__ import annotations

import logging
import sys
from contextlib import ExitStack

from kafka_replication.config import Replication
from kafka_replication.connections import SparkConnection
from kafka_replication.copying.engine import CopyTask
from kafka_replication.ledger.entries import Ids
from kafka_replication.model.errors import Unreachable
from kafka_replication.model.offsets import Coverage, OffsetRange, PartitionKey, TopicPartition
from kafka_replication.spark import local
from kafka_replication.spark.jobs import Job, RangeTask
from kafka_replication.spark.launcher import Launcher
from kafka_replication.spark.submit import OutputFile, TerminalSubmission, spark_home
from kafka_replication.verification.read_back import ReadBackTask

log = logging.getLogger(__name__)
# Tasks for it fail at once, which loads the same classes.
UNREACHABLE_CLUSTER = {"bootstrap.servers": "127.0.0.1:1", "log_level": "0"}
SECONDS = 300.0


def make() -> None:
    """Make the archive if it is missing. Raises OSError, ReplicationError."""
    if local.has_own_options(spark_home(), {}):
        log.info("no class-data archive: Java has options of your own, and is started as they say")
        return
    archive = local.archive(spark_home())
    if archive is None:
        log.info("no class-data archive for this Java: Spark starts more slowly without one")
        return
    with archive.making() as file:
        if file is None:
            return
        conf = {local.OPTIONS: " ".join([*local.QUICK, *local.SILENT, f"-XX:ArchiveClassesAtExit={file}"])}
        with ExitStack() as stack:
            output = OutputFile("class-data-archive")
            stack.callback(output.remove)
            submission = Patient(SparkConnection("local[2]", {}), {"spark.log.level": "OFF", **conf}, output)
            stack.enter_context(Launcher(lambda: submission)).submit(job(), lambda results: None)
    if archive.sound() is None:
        raise Unreachable("Java wrote none", "run python -m kafka_replication.spark.training again")
    log.info("made the class-data archive with which Spark starts faster, in %s", archive.folder)


class Patient(TerminalSubmission):
    """A submission that leaves Java time to write the archive, which it does after the driver has ended."""

    def wait(self, seconds: float) -> str | None:
        return super().wait(SECONDS if seconds else 0)


def job() -> Job:
    """Two tasks that find no cluster."""
    tasks = []
    for partition in range(2):
        key = PartitionKey("class-data-archive", TopicPartition("training", partition), "training")
        copy = CopyTask(key=key, range=OffsetRange(0, 1), ids=Ids("c", "s", "t"), generation=0, run_id="training")
        read_back = ReadBackTask(
            key=key, generation=0, verified=Coverage(), receipts_from=None, level="digest", kept_seconds=0
        )
        tasks.append(RangeTask(copy=copy, read_back=read_back))
    return Job(
        replication=Replication.model_validate(
            {
                "name": "class-data-archive",
                "source": {"connection": "source"},
                "target": {"connection": "target"},
                "topics": {"include": ["training"]},
                "timeouts": {"request": 1},
            }
        ),
        source=UNREACHABLE_CLUSTER,
        target=UNREACHABLE_CLUSTER,
        tasks=tasks,
        seconds=SECONDS,
    )


def main() -> int:
    """Make the archive if it is missing. Returns 0 also if no archive is possible, because it is optional."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        make()
    except Exception as e:  # noqa: BLE001  # whatever it is, Spark works without an archive
        log.warning("no class-data archive was made: %s; Spark starts more slowly without it", e)
    return 0


if __name__ == "__main__":
    sys.exit(main())
