"""``python -m stack.drill_member BOOTSTRAP GROUP MOST SEED FILE TOPIC...``: one consumer of a drill, in a process of
its own: a thread whose broker was killed waits for it, and would commit when it is back.

Notes each record in the file before it commits it: ``r TOPIC PARTITION OFFSET VALUE``, and ``c TOPIC PARTITION OFFSET``
for a commit that was done. With SIGTERM it commits for the last time, and ends.
"""

from __future__ import annotations

import random
import signal
import sys
import threading
import time
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition

QUIET = {"log_level": 0, "reconnect.backoff.max.ms": 500}


def main(bootstrap: str, group: str, most: str, seed: str, file: str, *topics: str) -> int:
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "session.timeout.ms": 6000,
            "fetch.wait.max.ms": 100,
            **QUIET,
        }
    )
    consumer.subscribe([*topics])
    chance, ahead = random.Random(seed), dict[tuple[str, int], int]()
    with Path(file).open("a", buffering=1) as notes:

        def commit() -> None:
            offsets = [TopicPartition(topic, partition, offset) for (topic, partition), offset in ahead.items()]
            try:
                done = consumer.commit(offsets=offsets, asynchronous=False) or ()
            except KafkaException:  # it tries again
                return
            for one in done:
                if one.error is None:
                    ahead.pop((one.topic, one.partition))
                    notes.write(f"c {one.topic} {one.partition} {one.offset}\n")

        while not over.is_set():
            for message in consumer.consume(chance.randrange(1, int(most)), 0.2):
                if message.error() is None:
                    topic, partition, offset = message.topic() or "", message.partition() or 0, message.offset() or 0
                    notes.write(f"r {topic} {partition} {offset} {(message.value() or b'').decode()}\n")
                    ahead[topic, partition] = offset + 1
            if ahead and chance.random() < 0.5:
                commit()
            over.wait(0.1)
        while ahead:
            commit()
            time.sleep(0.05)
    consumer.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
