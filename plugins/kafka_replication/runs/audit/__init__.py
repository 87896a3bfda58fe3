"""Audits: past ranges are compared on both sides, without a lease. What is read is decided here; workers read it."""
