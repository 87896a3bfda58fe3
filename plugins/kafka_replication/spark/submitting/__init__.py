"""The side of a run that starts Spark and gives it jobs."""
