"""A connection of a type of this package, added and tested by Airflow's own command line."""

from __future__ import annotations

import subprocess
import sys

from stack.ports import LOOPBACK
from tests.e2e.airflow_home import Airflow

FORM = '{"transport": "framed", "protocol": ""}'  # as the page stores a field that was left empty


def test_a_connection_of_our_type_is_added_and_tested(airflow: Airflow) -> None:
    environment = {**airflow.environment, "AIRFLOW__CORE__TEST_CONNECTION": "Enabled"}

    def said(*arguments: str) -> str:
        line = [sys.executable, "-m", "airflow", "connections", *arguments]
        done = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    address = ["--conn-host", LOOPBACK, "--conn-port", "1"]
    added = said("add", "rows", "--conn-type", "hbase", *address, "--conn-extra", FORM)
    assert "Successfully added" in added
    tested = said("test", "rows")
    assert f"target {LOOPBACK}:1 does not answer" in tested and "Remedy" in tested, "the hook was given all of it"
