"""The clients of one process: their settings, errors, quotas and pace, and a pool of consumers."""
