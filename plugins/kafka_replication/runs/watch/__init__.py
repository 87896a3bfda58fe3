"""Watching from outside of runs: causes of trouble are found and told."""
