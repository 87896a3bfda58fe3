"""The sections of a replication file, one model each."""
