"""The behaviour of a process: its deadline, its retries, its end on a signal, and points where a test may kill it."""
