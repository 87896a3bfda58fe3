"""Backfills: the request, its plan, and source offsets that are given back to be copied again."""
