"""Where client settings come from: the environment here, Airflow in `orchestration`."""
