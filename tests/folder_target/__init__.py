"""A target that is a folder: a kind of target of somebody else's package, which shows that the interfaces suffice.

It imports `kafka_replication.api`, `api.targets` and `tests.conformance` alone. Everything is in one file, ``journal``, whose
lines are written under a lock: each is whole or not there, so a line is a transaction. The place of a record in its
topic is its source offset: to write it again changes nothing.
"""
