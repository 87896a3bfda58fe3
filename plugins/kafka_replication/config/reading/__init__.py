"""The reading of replication files, and the messages about their mistakes."""
