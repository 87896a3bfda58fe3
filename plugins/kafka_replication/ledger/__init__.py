"""The ledger on the target, as values.

`entries` and `values` have the values and, by the types of their fields, their JSON; `codec` reads and writes it,
`record_keys` has the record keys, `view` the state of one replication. This package does not read or write topics:
`kafka` does.
"""
