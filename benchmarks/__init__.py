"""Measured against what a user would pick instead, on the same brokers, in the same run: ``make bench``."""
