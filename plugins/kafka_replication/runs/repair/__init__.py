"""Carries out a person's decisions: approve a gap, reset a topic, rebuild the store."""
