"""Carries out decisions of a person about ledger and store: approve a gap, reset a topic, repair entries, rebuild the
store.
"""
