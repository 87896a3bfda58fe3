"""The second step of a run: copy, read back and advance each partition by itself."""
