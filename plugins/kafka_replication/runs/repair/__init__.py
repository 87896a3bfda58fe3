"""Carries out a person's decisions: approve a gap, reset a topic, repair entries of the ledger, rebuild the store."""
