"""Asks HBase by its Thrift2 gateway, and translates its errors. Every call may be sent twice, and must bear it, unless
the caller says that it sends it again by itself.

The part of HBase's Thrift2 protocol that is used here: the numbers and types of fields, which are what travels.

``tests/integration/test_stack_hbase.py`` compares it with the definition in the gateway's own jar. Enumerations are
i32. Of the descriptions of tables only the attributes are used, which have every setting: what is sent back is then
what was there.
"""

from __future__ import annotations

import io
import re
import weakref
from collections.abc import Mapping
from threading import Lock
from typing import Any, Final
from urllib.parse import urlsplit

import thriftpy2
from thriftpy2.protocol import TBinaryProtocolFactory, TCompactProtocolFactory
from thriftpy2.protocol.cybin import ProtocolError  # type: ignore[attr-defined]
from thriftpy2.thrift import TApplicationException, TClient, TException
from thriftpy2.transport import (
    TBufferedTransportFactory,
    TFramedTransportFactory,
    TSocket,
    TTransportException,
)

from kafka_replication.model.errors import (
    BadInput,
    NotAuthorized,
    Refused,
    ReplicationError,
    Stalled,
    Unexpected,
    Unreachable,
)
from kafka_replication.model.harmless import harmless, with_reason
from kafka_replication.model.rights import ClusterName

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


SEE: Final = "see docs/hbase.md"
PORT: Final = 9090
TRANSPORTS: Final[Mapping[str, Any]] = {"buffered": TBufferedTransportFactory, "framed": TFramedTransportFactory}
PROTOCOLS: Final[Mapping[str, Any]] = {"binary": TBinaryProtocolFactory, "compact": TCompactProtocolFactory}
_Socket: Any = TSocket  # has no types
_NOT_USED: Final = f"one that asks for TLS, HTTP or a login (SASL) cannot be used; {SEE}"
SETTINGS: Final = frozenset({"url", "transport", "protocol"})
# All other calls are about rows, so that an error may show a key: a region's name alone has one.
_OF_TABLES: Final = re.compile(r".*Table.*|getClusterId|getThriftServerType")
_LOGINS: Final = ("login", "password", "keytab", "principal", "sasl")


def checked(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of the connection ``name``. Raises BadInput."""
    there = urlsplit(str(settings.get("url", "")))
    if not there.hostname:
        raise BadInput(f"connection {name!r} names no host", f"put that of the Thrift2 gateway into its host; {SEE}")
    if there.scheme == "https" or settings.get("use_ssl"):
        raise BadInput(
            f"connection {name!r} asks for TLS, which HBase's gateway has for HTTP alone, and that is not there yet",
            f"reach the gateway without, or by a tunnel; {SEE}",
        )
    if given := [one for one in _LOGINS if settings.get(one)]:
        raise BadInput(
            f"connection {name!r} has the setting {given[0]!r}: logins (SASL, Kerberos) are not there yet for HBase",
            f"use a gateway that has its own login to HBase and asks for none; {SEE}",
        )
    if unknown := sorted(settings.keys() - SETTINGS - {"use_ssl"} - set(_LOGINS)):
        raise BadInput(
            f"connection {name!r} has the unknown setting {unknown[0]!r} in its extra",
            f"use only protocol and transport; {SEE}",
        )
    for setting, known in (("transport", TRANSPORTS), ("protocol", PROTOCOLS)):
        if settings.get(setting, next(iter(known))) not in known:
            raise BadInput(f"connection {name!r}: {setting} is none of {', '.join(known)}", SEE)
    return {setting: value for setting, value in settings.items() if setting in SETTINGS}


class Answer(ReplicationError):
    """An error of HBase that the caller has to judge. It never leaves this package. ``reason`` is HBase's own text,
    which may show a row. ``inside``: the gateway names no cause.
    """

    def __init__(self, what: str, reason: str, *, inside: bool = False) -> None:
        super().__init__(what, "")
        self.reason, self.inside = reason, inside


class Client:
    """One cluster. Threads may share it: each call has a connection of its own."""

    def __init__(self, settings: Mapping[str, Any], request_seconds: float) -> None:
        there = urlsplit(str(settings["url"]))
        self._host, self._port = str(there.hostname), there.port or PORT
        self._seconds = request_seconds
        self._transport = TRANSPORTS[settings.get("transport", "buffered")]()
        self._protocol = PROTOCOLS[settings.get("protocol", "binary")]()
        self.name = ClusterName(f"{self._host}:{self._port}", "target")
        self._idle: list[Any] = []  # pairs of a socket and a client
        self._lock = Lock()
        weakref.finalize(self, _end, self._idle)

    def call(self, method: str, *args: Any, seconds: float = 0, repeats: bool = True) -> Any:
        """The answer, within the seconds of a request, or ``seconds`` if that is more. The call is sent again over a
        new connection if an idle one has ended, and ``repeats`` is True.

        Raises Unreachable, Stalled, NotAuthorized, Unexpected, Refused for a gateway that does not know the call, and
        Answer for what the caller has to judge.
        """
        seconds = max(seconds, self._seconds)
        with self._lock:
            idle = self._idle.pop() if self._idle else None
        if idle is not None:
            try:
                return self._asked(idle, method, args, seconds)
            except Stalled:
                raise
            except Unreachable:  # the gateway ends connections that are idle for long
                with self._lock:
                    _end(self._idle)
                if not repeats:
                    raise
        return self._asked(self._connected(method, seconds), method, args, seconds)

    def _connected(self, method: str, seconds: float) -> tuple[Any, Any]:
        socket = _Socket(self._host, self._port, socket_timeout=seconds * 1000, connect_timeout=seconds * 1000)
        transport = self._transport.get_transport(socket)
        try:
            transport.open()
        except (TTransportException, OSError) as error:
            raise self._away(method, error, seconds) from error
        return socket, TClient(thrift().THBaseService, self._protocol.get_protocol(transport))

    def _asked(self, connection: tuple[Any, Any], method: str, args: tuple[Any, ...], seconds: float) -> Any:
        socket, client = connection
        keep, of_table = False, _OF_TABLES.fullmatch(method)
        try:
            socket.set_timeout(seconds * 1000)
            answer = getattr(client, method)(*args)
            keep = True
        except thrift().TIOError as error:
            keep = True
            raise self._judged(method, str(error.message or "no reason")) from (error if of_table else None)
        except TApplicationException as error:
            keep = True
            raise self._inside(method, error) from (error if of_table else None)
        except (TTransportException, OSError, EOFError) as error:
            raise self._away(method, error, seconds) from error
        except (TException, ProtocolError) as error:
            told = repr(error) if of_table else with_reason(type(error).__name__, error)
            raise Unexpected(
                f"{self.name} answers {method} with what is not Thrift: {told}",
                f"correct port, transport or protocol of the connection; {_NOT_USED}",
            ) from (error if of_table else None)
        finally:
            if keep:
                with self._lock:
                    self._idle.append(connection)
            else:
                client.close()
        return answer

    def _away(self, method: str, error: Exception, seconds: float) -> Unreachable:
        what = f"{self.name} does not answer {method}: {_text(error)}"
        if isinstance(error, TimeoutError) or "timed out" in _text(error):
            return Stalled(f"{what}, within {seconds:g} s", "check the cluster; or raise timeouts.request")
        return Unreachable(what, f"start the Thrift2 gateway, or correct the connection's address; {_NOT_USED}")

    def _judged(self, method: str, reason: str) -> ReplicationError:
        reason = reason.partition("\n")[0]
        told = reason if _OF_TABLES.fullmatch(method) else harmless(reason) or "see the log of the Thrift2 gateway"
        what = f"{self.name} refuses {method}: {told}"
        if "Insufficient permissions" in reason or "AccessDenied" in reason:
            return NotAuthorized(what, f"grant the gateway's user the right that the answer names; {SEE}")
        return Answer(what, reason)

    def _inside(self, method: str, error: TApplicationException) -> ReplicationError:
        if error.type == TApplicationException.UNKNOWN_METHOD:
            return Refused(
                f"{self.name} does not know the call {method}: it is no Thrift2 gateway of HBase 2.5 or newer",
                f"start `hbase thrift2` of a newer version, and name its port; {SEE}",
            )
        return Answer(f"{self.name} fails in {method}: {harmless(str(error.message))}", str(error.message), inside=True)


def _end(idle: list[Any]) -> None:
    while idle:
        _, client = idle.pop()
        client.close()


def _text(error: Exception) -> str:
    return str(getattr(error, "message", None) or error) or type(error).__name__
