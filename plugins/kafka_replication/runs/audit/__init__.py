"""Audits: past ranges are compared on both sides, without a lease and without Spark."""
