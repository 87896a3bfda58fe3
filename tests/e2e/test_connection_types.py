"""A connection of a type of this package, added and tested by Airflow's own command line."""

from __future__ import annotations

from stack.ports import LOOPBACK
from tests.e2e.airflow_home import Airflow

FORM = '{"transport": "framed", "protocol": ""}'  # as the page stores a field that was left empty


def test_a_connection_of_our_type_is_added_and_tested(airflow: Airflow) -> None:
    address = ["--conn-host", LOOPBACK, "--conn-port", "1"]
    code, added = airflow.airflow("connections", "add", "rows", "--conn-type", "hbase", *address, "--conn-extra", FORM)
    assert code == 0 and "Successfully added" in added
    _, tested = airflow.airflow("connections", "test", "rows")
    assert f"target {LOOPBACK}:1 does not answer" in tested and "Remedy" in tested, "the hook was given all of it"
