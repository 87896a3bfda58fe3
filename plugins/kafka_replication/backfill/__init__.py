"""A backfill before it runs: what was asked for, what it would mean, and how that is shown."""
