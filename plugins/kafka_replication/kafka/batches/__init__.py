"""Whole record batches: reads them from a partition, sends them within a session's transaction, and reads them back."""
