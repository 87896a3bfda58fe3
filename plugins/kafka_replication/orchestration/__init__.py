"""DAGs, operators and connections: the only package that imports Airflow."""
