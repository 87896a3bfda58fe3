"""What a user can have done, put together from the other parts: a run and its steps, backfill, audit, approval, reset,
rebuild.
"""
