"""Alerts out of Airflow: callbacks of a task, notifiers, the watcher."""
