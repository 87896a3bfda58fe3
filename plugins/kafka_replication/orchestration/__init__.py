"""Airflow's side of the package, and the only place that imports it: DAGs, operators, connections."""
