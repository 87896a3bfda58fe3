"""Texts on Airflow's pages: a DAG's description, and the fields of its form."""
