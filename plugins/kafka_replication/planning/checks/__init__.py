"""Checks before anything is copied, and their findings."""
