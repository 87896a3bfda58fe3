"""What a person decides about ledger and store: approve a gap, reset a topic, repair entries, rebuild the store."""
