"""The client loop of librdkafka (`client_loop`) as a peer of a copy."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # re-exported without saying so

from benchmarks.client_loop import MODULE, Loop, copy_some, halves
from benchmarks.clusters import Pair
from benchmarks.two_processes import two_processes
from benchmarks.usage import Usage, Used, until_ended
from benchmarks.workload import PARTITIONS
from kafka_replication.kafka.offsets import high_watermarks
from kafka_replication.model.offsets import TopicPartition


def copy(pair: Pair, topic: str, records: int, name: str) -> Used:
    """Copy a whole topic to ``name.topic`` in two processes that have started before the clock does."""
    loop = _prepared(pair, topic, f"{name}.{topic}")
    with two_processes(MODULE) as (pool, pids), Usage(pids, pair.brokers) as usage:
        pool.starmap(copy_some, halves(loop))
    return _complete(pair, loop.to, records, usage.used)


def start_to_end(pair: Pair, topic: str, records: int, name: str) -> Used:
    """The same as a program of its own, from its start to its end."""
    loop = _prepared(pair, topic, f"{name}.{topic}")
    process = subprocess.Popen([sys.executable, "-m", MODULE], stdin=subprocess.PIPE, text=True)
    with Usage([process.pid], pair.brokers) as usage:
        assert process.stdin is not None
        process.stdin.write(json.dumps(asdict(loop)))
        process.stdin.close()
        until_ended(process.pid)
    process.wait()
    return _complete(pair, loop.to, records, usage.used)


def _prepared(pair: Pair, topic: str, to: str) -> Loop:
    pair.admin.create_topics([NewTopic(to, PARTITIONS, pair.replicas)])[to].result(30)
    source = AdminClient(dict(pair.source))
    found = high_watermarks(source, [TopicPartition(topic, number) for number in range(PARTITIONS)])
    ends = {partition.partition: offset for partition, offset in found.items()}
    return Loop(source=pair.source, target=pair.target, topic=topic, to=to, ends=ends)


def _complete(pair: Pair, topic: str, records: int, used: Used) -> Used:
    if (count := pair.count(topic)) != records:
        raise SystemExit(f"the client loop copied {count:,} of {records:,} records to {topic}")
    return used
