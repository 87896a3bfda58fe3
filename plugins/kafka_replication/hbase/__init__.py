"""HBase as a target, through its Thrift2 gateway: the only package that imports thriftpy2. docs/hbase.md says what it
promises.

`protocol` names the calls; `rows` is pure: a record as a row, and back; `puts` writes rows and judges the one answer
about many; `shelf` is where the ledger lies.
"""
