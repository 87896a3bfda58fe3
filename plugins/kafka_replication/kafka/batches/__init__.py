"""Whole record batches: read from a partition, sent within a session's transaction, and read back."""
