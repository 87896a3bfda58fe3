"""The operations of a user, composed of the other packages: run, backfill, audit, approval, reset, rebuild."""
