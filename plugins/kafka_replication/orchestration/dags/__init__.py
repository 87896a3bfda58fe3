"""The DAGs of a replication file, and those for files with mistakes."""
