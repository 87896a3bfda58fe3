"""What the ledger on the target holds: entries, their versioned JSON, and one replication's view of them."""
