"""A real HBase on loopback: ZooKeeper, master and region server in one process, its Thrift2 gateway in another, on the
local file system, without TLS and logins. Each process has a pid file and a log.
"""

from __future__ import annotations

import json
import shutil
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from xml.sax.saxutils import escape

from stack.artifacts import HBASE, jars
from stack.errors import StackError
from stack.java import java
from stack.ports import LOOPBACK, answers, free_ports, is_taken
from stack.processes import ProcessRecord, complaints, end, launch, since, tail

START_SECONDS = 300
STOP_SECONDS = 40
STARTED = "Master has completed initialization"
_MASTER, _GATEWAY, _OLD = "master", "thrift", "thrift1"
_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_HEAP = {_MASTER: "-Xmx512m", _GATEWAY: "-Xmx128m", _OLD: "-Xmx256m"}
# What HBase and Hadoop reach into, by reflection.
_OPENED = (
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.lang.reflect",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/jdk.internal.ref",
    "java.base/sun.net.dns",
    "java.base/sun.net.util",
    "java.base/sun.nio.ch",
)
_EXPORTED = ("java.base/jdk.internal.misc", "java.security.jgss/sun.security.krb5")
_LOG_SETTINGS = Path(__file__).with_name("hbase-log4j.properties")


class HBaseServer:
    """A server in the folder ``state/name``. It survives this program; the same name and folder find it again, with
    its ports and its data. ``settings`` are more lines of hbase-site.xml. ``old_gateway``: also one of the first kind
    (Thrift), for clients that know no other. ``user`` is the name by which the Thrift2 gateway asks; without one it is
    that of whoever starts the server, who may do all.
    """

    def __init__(
        self,
        name: str,
        state: Path,
        settings: Mapping[str, str] | None = None,
        *,
        old_gateway: bool = False,
        user: str = "",
    ) -> None:
        self.name, self.folder = name, Path(state).resolve() / name
        self._settings, self._user = dict(settings or {}), user
        self._gateways = {_GATEWAY: "thrift2", **({_OLD: "thrift"} if old_gateway else {})}
        self._facts = self.folder / "ports.json"
        self._log_start = 0

    def __str__(self) -> str:
        return f"HBase {self.name} ({LOOPBACK}:{self.port})"

    @property
    def port(self) -> int:
        """The port of the Thrift2 gateway; known once the server was started."""
        return self._ports()[0]

    @property
    def old_port(self) -> int:
        """The port of the gateway of the first kind, if it was asked for."""
        return self._ports()[4]

    @property
    def pids(self) -> list[int]:
        """Those of all its processes that live."""
        found = (self.process(which) for which in (_MASTER, *self._gateways))
        return [process.pid for process in found if process is not None]

    def process(self, which: str = _MASTER) -> ProcessRecord | None:
        """The living ``master`` (with the data), ``thrift`` or ``thrift1``, or None."""
        record = ProcessRecord.read(self._record(which))
        return record if record is not None and record.alive else None

    def start(self) -> None:
        """Start what does not run, and wait until it serves. Its data is kept. Raises StackError."""
        missing = [which for which in (_MASTER, *self._gateways) if self.process(which) is None]
        if missing:
            (self.folder / "conf").mkdir(parents=True, exist_ok=True)
            self._settle_ports(missing)
            self._configure()
        if _MASTER in missing:
            self._log_start = self._size(_MASTER)
            self._launch(_MASTER, ["org.apache.hadoop.hbase.master.HMaster", "start"])
        for which, package in self._gateways.items():
            if which in missing:
                port = self.port if which == _GATEWAY else self.old_port
                at = ["-p", str(port), "-b", LOOPBACK, "--infoport", "-1"]
                self._launch(which, [f"org.apache.hadoop.hbase.{package}.ThriftServer", "start", *at])
        try:
            self._wait_started(time.monotonic() + START_SECONDS)
        except BaseException:
            self.stop()
            raise

    def _launch(self, which: str, main: list[str]) -> None:
        command = [
            java(),
            _HEAP[which],
            *_JVM,
            *(part for name in _OPENED for part in ("--add-opens", f"{name}=ALL-UNNAMED")),
            *(part for name in _EXPORTED for part in ("--add-exports", f"{name}=ALL-UNNAMED")),
            *([f"-DHADOOP_USER_NAME={self._user}"] if self._user and which == _GATEWAY else ()),
            f"-Djava.io.tmpdir={self.folder}",
            f"-Dlog4j.configuration=file:{_LOG_SETTINGS}",
            "-cp",
            f"{self.folder / 'conf'}:{jars(HBASE)}/*",
            *main,
        ]
        launch(command, self._log(which), self._record(which), cwd=self.folder)

    def _configure(self) -> None:
        _, zookeeper, master, region_server, *_ = self._ports()
        settings = {
            "hbase.rootdir": f"file://{self.folder / 'data'}",
            "hbase.tmp.dir": str(self.folder / "tmp"),
            "hbase.unsafe.stream.capability.enforce": "false",  # the local file system promises less than HDFS
            "hbase.zookeeper.quorum": LOOPBACK,
            "hbase.zookeeper.property.clientPort": zookeeper,
            "hbase.zookeeper.property.clientPortAddress": LOOPBACK,
            "hbase.zookeeper.property.dataDir": str(self.folder / "zookeeper"),
            "hbase.master.port": master,
            "hbase.master.info.port": -1,
            "hbase.regionserver.port": region_server,
            "hbase.regionserver.info.port": -1,
            **{f"hbase.{server}.ipc.address": LOOPBACK for server in ("master", "regionserver")},
            **{f"hbase.{server}.hostname": "localhost" for server in ("master", "unsafe.regionserver")},
            # One region server is all that there will be: no waiting for others.
            "hbase.master.wait.on.regionservers.timeout": 500,
            "hbase.master.wait.on.regionservers.interval": 100,
            "hbase.regionserver.msginterval": 500,
            "hbase.regionserver.handler.count": 8,
            "hfile.block.cache.size": "0.1",
            # Many small tables and some large records have to fit into the heap: without these two each region that
            # holds anything takes 2 MiB, and 128 MiB are kept before they are written to a file.
            "hbase.hregion.memstore.mslab.enabled": "false",
            "hbase.hregion.memstore.flush.size": 32 << 20,
            **self._settings,
        }
        lines = (
            f"<property><name>{name}</name><value>{escape(str(value))}</value></property>"
            for name, value in settings.items()
        )
        text = "\n".join(["<configuration>", *lines, "</configuration>", ""])
        (self.folder / "conf" / "hbase-site.xml").write_text(text)

    def _wait_started(self, deadline: float) -> None:
        ports = [self.port, *([self.old_port] if _OLD in self._gateways else [])]
        while not (all(map(answers, ports)) and STARTED in since(self._log(_MASTER), self._log_start)):
            for which in (_MASTER, *self._gateways):
                last = f"the end of {self._log(which)}:\n{tail(self._log(which))}"
                if self.process(which) is None:
                    named = complaints(self._log(which), offset=self._log_start if which == _MASTER else 0)
                    raise StackError(
                        f"{self} ({which}) ended while starting\n{named}\n{last}", "the log names the cause"
                    )
                if time.monotonic() > deadline:
                    raise StackError(
                        f"{self} has not started within {START_SECONDS} s; {last}",
                        "see the log; free memory or processors",
                    )
            time.sleep(0.1)

    def kill(self, which: str = _MASTER) -> None:
        """SIGKILL for one of the two; returns when the process is gone."""
        end(self._record(which), signal.SIGKILL, f"{self} ({which})", STOP_SECONDS)

    def stop(self) -> None:
        """SIGTERM, then SIGKILL after a while; the data stays."""
        for which in (*self._gateways, _MASTER):
            end(self._record(which), signal.SIGTERM, f"{self} ({which})", STOP_SECONDS)

    def wipe(self) -> None:
        """Stop, and forget everything that was stored."""
        if self._facts.exists():
            self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _record(self, which: str) -> Path:
        return self.folder / f"{which}.pid"

    def _log(self, which: str) -> Path:
        return self.folder / f"{which}.log"

    def _size(self, which: str) -> int:
        return self._log(which).stat().st_size if self._log(which).exists() else 0

    def _ports(self) -> list[int]:
        if not self._facts.exists():
            raise StackError(f"HBase {self.name} was never started in {self.folder}", "start it first")
        return [int(port) for port in json.loads(self._facts.read_text())]

    def _settle_ports(self, missing: list[str]) -> None:
        """Those of the last start where they are free or in use by the other process, else new ones."""
        if not self._facts.exists():
            self._facts.write_text(json.dumps(free_ports(3 + len(self._gateways))) + "\n")
            return
        gateway, *others = self._ports()
        others, old = others[:3], others[3:]
        if _GATEWAY in missing and is_taken(gateway):
            [gateway] = free_ports(1)
        if _OLD in missing and (not old or is_taken(old[0])):
            old = free_ports(1)
        if _MASTER in missing and any(map(is_taken, others)):
            others = free_ports(3)
        self._facts.write_text(json.dumps([gateway, *others, *old]) + "\n")
