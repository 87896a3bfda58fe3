"""What the ledger on the target holds.

`entries` has the values, `codec` their JSON, `formats` each version of each kind, `record_keys` the keys they lie
under, `view` what they say about one replication. Reading and writing the topics is not done here: `kafka` does it.
"""
