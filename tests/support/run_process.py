"""A whole run in a process of its own, to be killed: ``python -m tests.support.run_process SOURCE TARGET STORE_URL CONFIG_JSON [AT_ONCE]``."""

from __future__ import annotations

import json
import os
import sys

from kafka_replication.config import Replication
from kafka_replication.documents import as_json
from kafka_replication.runs import leasing
from kafka_replication.runs.run import Request
from kafka_replication.store import open_store
from tests.support import whole_runs
from tests.support.addresses import Addresses
from tests.support.jobs import InProcess

if __name__ == "__main__":
    source, target, store_url, config, *at_once = sys.argv[1:]
    # Short, so that a test that stops this process need not wait long for the next one.
    leasing.DURATION = float(os.environ.get("LEASE_SECONDS", "3"))
    launcher = InProcess(at_once=int(*at_once or ["1"]))
    report = whole_runs.run(
        Replication.model_validate_json(config), Addresses(source, target), open_store(store_url), launcher, Request()
    )
    print(json.dumps(as_json(report)))
