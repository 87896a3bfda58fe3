"""The last step of a run: account for every range; and where each partition stands at any time."""
