"""What the ledger on the target holds.

`entries` has the values, `codec` their JSON, `formats` every version of every kind, `record_keys` their record keys,
`view` the state of one replication. This package does not read or write topics: `kafka` does.
"""
