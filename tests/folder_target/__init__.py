"""A target that is a folder: a kind of target of somebody else's package, which shows that a `RecordStore` suffices.

It imports `kafka_replication.api` and `api.targets` alone; its ground is that of the suites in `tests.conformance`.
"""
