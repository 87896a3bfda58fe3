"""A whole run with real Spark, in a process of its own: ``python -m tests.support.spark_run_process SOURCE TARGET STORE_URL CONFIG_JSON
CLIENT_JSON``, whose last argument has further settings of the target's client.

Prints one JSON document: the report, or the error that ended the run.
"""

from __future__ import annotations

import json
import logging
import sys

from kafka_replication.config import Replication
from kafka_replication.documents import as_json
from kafka_replication.model.errors import ReplicationError
from kafka_replication.runs.run import Request
from kafka_replication.runtime import stopping
from kafka_replication.spark.launcher import terminal_launcher
from kafka_replication.store import open_store
from tests.support import whole_runs
from tests.support.addresses import Addresses

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    stopping.on_signals()
    source, target, store_url, config, client = sys.argv[1:]
    clusters = Addresses(source, target, of_target=json.loads(client))
    launcher = terminal_launcher(lambda: clusters.spark(""), {})
    try:
        report = whole_runs.run(
            Replication.model_validate_json(config), clusters, open_store(store_url), launcher, Request()
        )
    except ReplicationError as error:
        print(json.dumps({"outcome": "failed", "error": str(error), "ranges": []}))
        sys.exit(1)
    print(json.dumps(as_json(report)))
