"""The operators of the DAGs' tasks, and the assets that a report announces."""
