"""Checks and readers of single values of a file: names, times, schedules, filter expressions."""
