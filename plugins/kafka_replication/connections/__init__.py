"""Where client settings come from.

``port``: what the rest of the package asks for. ``definition``: what a connection means, the same in Airflow and on the
command line. ``environment``: connections of the environment's variables; Airflow's are in `orchestration`.
"""
