"""``python -m benchmarks.time_to_alert [--stalled-after SECONDS] [--busy N] [CASE ...]``: how soon a person is told.

Real brokers, real Spark, the command line as a user calls it, and ``kafka-replication watch`` beside it, as a service
would run it, or a whole Airflow. The alerts arrive at a real SMTP server and a real HTTP server on the loopback. For
each case it prints the seconds from the fault to the arrival of the alert by mail and by webhook, from the mending of
the fault to the arrival of the message that it healed, and how many messages there were. Fails if an alert took longer
than ``stalled_after`` + 120 s (a dead cluster under Airflow: 60 s after the first error in a task's log), or if there
was not exactly one of each. ``--busy`` processes keep a processor at work meanwhile. A case may be named again.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from benchmarks import alert_cases, alert_cases_airflow
from benchmarks.alert_bench import PARTITIONS, Bench, Times, fill
from benchmarks.small_partitions import busy
from stack.kafka_cluster import KafkaCluster, start_all, stop_all
from tests.support.received import inbox

ALLOWED = 120.0
# The brokers know rights, and allow everything that no access control list is about.
_RIGHTS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
CASES = {**alert_cases.CASES, **alert_cases_airflow.CASES}


def main() -> None:
    parser = argparse.ArgumentParser(description="How long after a fault a person is told.")
    parser.add_argument("--stalled-after", type=int, default=600)
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("cases", nargs="*", choices=[*CASES, []], metavar="CASE")
    asked = parser.parse_args()
    print(f"stalled_after {asked.stalled_after} s, {PARTITIONS} partitions; seconds")
    print("case                        mail  webhook  healed  alerts  healings  first line of the alert", flush=True)
    failed = False
    for name in asked.cases or CASES:
        with busy(asked.busy):
            times = one(name, asked.stalled_after)
        print(
            f"{name:<26} {times.mail:>5.0f}  {times.webhook:>7.0f}  {times.healed:>6.0f}  {times.alerts:>6}"
            f"  {times.healings:>8}  {times.said}",
            flush=True,
        )
        allowed = min(asked.stalled_after + ALLOWED, times.within)
        slow = max(times.mail, times.webhook) > allowed or times.healed > ALLOWED
        failed = failed or slow or (times.alerts, times.healings) != (1, 1)
    if failed:
        sys.exit("an alert came late, or there was not exactly one alert and one message that it healed")


def one(name: str, stalled_after: int) -> Times:
    """One case on clusters of its own."""
    folder = Path(tempfile.mkdtemp(prefix="time-to-alert-"))
    source, target = KafkaCluster("source", folder), KafkaCluster("target", folder, extra=_RIGHTS)
    try:
        start_all([source, target])
        fill(source.bootstrap)
        with inbox() as received:
            bench = Bench(folder, source, target, received, stalled_after)
            return CASES[name](bench)
    finally:
        stop_all([source, target])
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
