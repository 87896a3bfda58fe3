"""One range's copy in a process of its own, to be killed: ``python -m tests.integration.copy_process JOB_FILE``.

Each chunk is logged to stdout as it is committed; the last line is ``RESULT`` and the outcome as JSON.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from kafka_replication.spark.jobs import JOB
from kafka_replication.spark.worker import execute

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    job = JOB.validate_json(Path(sys.argv[1]).read_bytes())
    print("RESULT", execute(JOB.dump_json(job.common), job.rows()[0]), flush=True)
