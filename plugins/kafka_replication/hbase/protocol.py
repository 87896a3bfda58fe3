"""The part of HBase's Thrift2 protocol that is used here: the numbers and types of fields, which are what travels.

``tests/integration/test_stack_hbase.py`` compares it with the definition in the gateway's own jar. Enumerations are
i32. Of the descriptions of tables only the attributes are used, which have every setting: what is sent back is then
what was there.
"""

from __future__ import annotations

import io
from typing import Any, Final

import thriftpy2

DEFINITION: Final = """
struct TTimeRange { 1: required i64 minStamp, 2: required i64 maxStamp }
struct TColumn { 1: required binary family, 2: optional binary qualifier }
struct TColumnValue {
  1: required binary family, 2: required binary qualifier, 3: required binary value, 4: optional i64 timestamp
}
struct TResult { 1: optional binary row, 2: required list<TColumnValue> columnValues }
struct TGet {
  1: required binary row, 2: optional list<TColumn> columns, 6: optional binary filterString
}
struct TPut { 1: required binary row, 2: required list<TColumnValue> columnValues, 6: optional i32 durability }
struct TDelete { 1: required binary row, 3: optional i64 timestamp, 7: optional i32 durability }
struct TScan {
  1: optional binary startRow, 2: optional binary stopRow, 3: optional list<TColumn> columns, 4: optional i32 caching,
  6: optional TTimeRange timeRange, 7: optional binary filterString, 11: optional bool reversed, 15: optional i32 limit
}
struct TTableName { 1: optional binary ns, 2: required binary qualifier }
struct TColumnFamilyDescriptor {
  1: required binary name, 2: optional map<binary, binary> attributes, 3: optional map<string, string> configuration
}
struct TTableDescriptor {
  1: required TTableName tableName, 2: optional list<TColumnFamilyDescriptor> columns,
  3: optional map<binary, binary> attributes
}
exception TIOError { 1: optional string message, 2: optional bool canRetry }
service THBaseService {
  TResult get(1: required binary table, 2: required TGet tget) throws (1: TIOError io)
  list<TResult> getMultiple(1: required binary table, 2: required list<TGet> tgets) throws (1: TIOError io)
  void putMultiple(1: required binary table, 2: required list<TPut> tputs) throws (1: TIOError io)
  list<TDelete> deleteMultiple(1: required binary table, 2: required list<TDelete> tdeletes) throws (1: TIOError io)
  bool checkAndPut(
    1: required binary table, 2: required binary row, 3: required binary family, 4: required binary qualifier,
    5: binary value, 6: required TPut tput
  ) throws (1: TIOError io)
  list<TResult> getScannerResults(1: required binary table, 2: required TScan tscan, 3: i32 numRows)
    throws (1: TIOError io)
  TTableDescriptor getTableDescriptor(1: required TTableName table) throws (1: TIOError io)
  bool tableExists(1: TTableName tableName) throws (1: TIOError io)
  bool isTableEnabled(1: required TTableName tableName) throws (1: TIOError io)
  void createTable(1: required TTableDescriptor desc, 2: optional list<binary> splitKeys) throws (1: TIOError io)
  void modifyTable(1: required TTableDescriptor desc) throws (1: TIOError io)
  i32 getThriftServerType()
  string getClusterId()
}
"""
THRIFT2: Final = 2  # of getThriftServerType
SYNC_WAL: Final = 3  # of durability: acknowledged when it is in the log, whatever the table says
# Once, while this module is imported: a second one would have classes of its own, whose errors nobody here catches.
_LOADED: Final[Any] = thriftpy2.load_fp(io.StringIO(DEFINITION), "kafka_replication_hbase_thrift")


def thrift() -> Any:
    """The types and the service, as thriftpy2 makes them."""
    return _LOADED
