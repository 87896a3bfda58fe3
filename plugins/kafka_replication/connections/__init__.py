"""Reads client settings from connections.

``port``: the interface for the rest of the package. ``definition``: the meaning of a connection, the same in Airflow
and on the command line. ``environment``: connections of environment variables; Airflow's are in `orchestration`.
"""
