"""Watches replications from outside their runs, and alerts."""
