"""The report of a run, its arithmetic and its progress; the runs at work."""
