"""The batch engine."""
