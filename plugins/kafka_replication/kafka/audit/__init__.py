"""Audits of parts of a partition, with clients of their own: what a worker does, and returns as findings."""
