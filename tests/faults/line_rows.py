"""Faults of the line to a cluster: slow, long, or throttled by a quota. Nothing is killed; the run has to come to its end."""

from __future__ import annotations

import os
from functools import partial

from kafka_replication.runtime.events import Event
from tests.faults import load, profiles
from tests.faults.attempt import Attempt
from tests.faults.bench import Bench, Side
from tests.faults.kafka_tool import run_tool
from tests.faults.load import PARTITIONS, Load
from tests.faults.row import Row
from tests.faults.sampler import progress
from tests.faults.trial import Trial, TrialFailed
from tests.support.checker import Record
from tests.support.scenario import Rec

SLOW = 200_000  # bytes a second, of each broker
QUOTA = 1_000_000  # bytes a second, of each broker
LONGER = profiles.current().longer  # more records, and as many bytes
SIZE = 1_000 // LONGER
ON_SLOW_LINE = 2_500  # records of a partition: 12 s at SLOW, and a transaction has 10
MANY = 3_000
TOO_LARGE = 50_000  # the size of a record that is refused


def heavy(count: int, bench: Bench, topic: str, _: int, too_large: int | None = None) -> Load:
    """``count`` records of a partition, or ``LONGER`` times as many, that cannot be compressed.

    ``too_large`` is the number, in each partition, of a record that a topic with max.message.bytes=20000 refuses.
    """
    source = bench.source.direct
    source.create(topic, PARTITIONS)
    for partition in range(PARTITIONS):
        records = (
            Rec(
                b"%d/%d" % (partition, n),
                os.urandom(TOO_LARGE if n == too_large else SIZE),
                (),
                load.FIRST_TIME + n,
            )
            for n in range(count * LONGER)
        )
        source.produce(topic, records, partition)
    return load.look(source, topic)


def _one_run(trial: Trial) -> Attempt:
    """It finishes: nothing failed that a second run would have to heal."""
    run = trial.start()
    if trial.finish(run) != "done":
        raise TrialFailed(f"the run did not end well: {run.errors}")
    return run


def slow(trial: Trial) -> None:
    trial.copy["chunk_records"] = 100_000
    for proxy in trial.bench.target.proxies:
        proxy.throttle(SLOW)
    _one_run(trial)


def distant(seconds: float, trial: Trial) -> None:
    """So long there and back."""
    for proxy in trial.bench.target.proxies:
        proxy.delay(seconds / 2)
    _one_run(trial)


def distant_refusal(trial: Trial) -> None:
    """One record of each partition is too large for a target 200 ms away: searching it takes a logarithm of attempts.
    One run comes as far as it may go.
    """
    trial.copy |= {"chunk_records": 100_000, "transaction_timeout": 30}
    if profiles.current().aside is None:
        trial.limits = {number: _first_too_large(records) for number, records in trial.load.records.items()}
    trial.bench.target.direct.create(trial.target_topic, PARTITIONS, {"max.message.bytes": "20000"}, replicas=3)
    for proxy in trial.bench.target.proxies:
        proxy.delay(0.1)
    run = trial.start()
    trial.finish(run)
    wanted = trial.limits or trial.load.ends
    if trial.watermarks() != wanted:
        raise TrialFailed(f"the watermarks are {trial.watermarks()}, not {wanted}; run {run.number}: {run.errors}")


def _is_too_large(record: Record) -> bool:
    return len(record.value or b"") == TOO_LARGE


def _first_too_large(records: list[tuple[int, Record]]) -> int:
    return next(offset for offset, record in records if _is_too_large(record))


def quota(side: str, kind: str, trial: Trial) -> None:
    """The brokers of one side allow these clients so much a second, and make them wait."""
    bench_side: Side = getattr(trial.bench, side)
    trial.clients = {"client.id": trial.name}
    trial.copy["chunk_records"] = 100_000
    set_quota(bench_side.cluster.bootstrap, trial.name, f"{kind}_byte_rate={QUOTA}")
    run = _one_run(trial)
    if str(Event.THROTTLED) not in run.text:
        raise TrialFailed("no broker made a client wait: the row needs a larger load")
    if not (shown := progress(trial.store, trial.name)).get("throttled"):
        raise TrialFailed(f"the progress does not say that a quota made the run wait: {shown}")


def set_quota(bootstrap: str, client_id: str, limit: str) -> None:
    """The client library has no request for it, so Kafka's own tool asks."""
    entity = ["--entity-type", "clients", "--entity-name", client_id]
    run_tool("kafka.admin.ConfigCommand", "--bootstrap-server", bootstrap, "--alter", *entity, "--add-config", limit)


ROWS = (
    Row("target-slow", slow, "core", load=partial(heavy, ON_SLOW_LINE)),
    Row("target-50-ms-away", partial(distant, 0.05), "core"),
    Row("target-200-ms-away", partial(distant, 0.2), "core"),
    Row(
        "target-200-ms-away-refuses",
        distant_refusal,
        expected=r"refuses the record at offset \d+",
        load=partial(heavy, 1_000, too_large=777 * LONGER),
        refused=_is_too_large,
    ),
    Row("target-produce-quota", partial(quota, "target", "producer"), "core", load=partial(heavy, MANY)),
    Row("source-fetch-quota", partial(quota, "source", "consumer"), "core", load=partial(heavy, MANY)),
)
