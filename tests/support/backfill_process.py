"""A backfill in a process of its own, to be killed: ``SOURCE TARGET STORE_URL CONFIG_JSON TOPIC FROM UNTIL [TARGET_TOPIC]``."""

from __future__ import annotations

import json
import sys

from kafka_replication.config import Replication
from kafka_replication.documents import as_json
from kafka_replication.planning.backfill_request import parse
from kafka_replication.store import open_store
from tests.support import whole_runs
from tests.support.addresses import Addresses
from tests.support.jobs import InProcess

if __name__ == "__main__":
    source, target, store_url, config, topic, from_, until, *more = sys.argv[1:]
    replication = Replication.model_validate_json(config)
    request = parse(replication, topics=[topic], from_=from_, until=until, target_topic=more[0] if more else None)
    report = whole_runs.backfill(replication, Addresses(source, target), open_store(store_url), InProcess(), request)
    print(json.dumps(as_json(report)))
