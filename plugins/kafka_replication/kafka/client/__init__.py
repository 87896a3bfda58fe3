"""Clients of one process: their settings, errors, quotas and pace; consumers that are used again."""
