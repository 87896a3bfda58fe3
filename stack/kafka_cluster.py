"""A real Apache Kafka cluster on loopback: combined broker and controller processes (KRaft), each with its own pid file
and log. Brokers of Kafka 2 have a ZooKeeper beside them instead.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from stack import zookeeper
from stack.artifacts import CURRENT, RELEASES, Release, kafka_jars
from stack.errors import StackError
from stack.java import java
from stack.ports import LOOPBACK, answers, free_ports, is_taken
from stack.processes import ProcessRecord, complaints, end, launch, since, tail
from stack.quick_start import META, QuickStart, new_id

START_SECONDS = 300
STOP_SECONDS = 15
BENCH = "KAFKA_REPLICATION_BENCH"
STARTED = ("Kafka Server started", "[KafkaServer id={}] started")  # with KRaft, with ZooKeeper

_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
# The first compiler only starts a broker in 3 s instead of 5; a benchmark wants the broker that production has.
JVM_QUICK = ("-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_JVM_BENCH = ("-Xmx1g", "-XX:+UseSerialGC")


class Broker:
    """One broker process; ``node_id`` counts from 1."""

    def __init__(
        self,
        cluster: str,
        folder: Path,
        node_id: int,
        port: int,
        release: Release = CURRENT,
        archiving: Sequence[str] = (),
    ) -> None:
        self.cluster = cluster
        self.release = release
        self.node_id = node_id
        self.port = port
        self.folder = folder
        self.log = folder / f"broker{node_id}.log"
        self.properties = folder / f"broker{node_id}.properties"
        self.data = folder / f"data{node_id}"
        self._record = folder / f"broker{node_id}.pid"
        self._log_start = 0
        self._archiving = tuple(archiving)

    def __str__(self) -> str:
        return f"broker {self.node_id} of {self.cluster} ({LOOPBACK}:{self.port})"

    @property
    def process(self) -> ProcessRecord | None:
        """The living process, or None."""
        record = ProcessRecord.read(self._record)
        return record if record is not None and record.alive else None

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process else None

    def start(self) -> None:
        """Start the process unless it runs, and wait until it serves. Its data is kept."""
        self.launch(kafka_jars(release=self.release))
        self.wait_started(deadline := time.monotonic() + START_SECONDS)
        if self.release.zookeeper:
            zookeeper.await_topics(f"{LOOPBACK}:{self.port}", self.data, deadline)

    def launch(self, jars: Path) -> None:
        """Start the process unless it runs; does not wait."""
        if self.process is not None:
            return
        if is_taken(self.port):
            raise StackError(
                f"port {self.port} is taken: {self} cannot listen there",
                "stop what listens there, or choose another port",
            )
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        command = [
            java(),
            *self._java_options(jars),
            f"-Dlog4j2.configurationFile={_LOG_SETTINGS}",
            "-cp",
            f"{jars}/*",
            "kafka.Kafka",
            str(self.properties),
        ]
        launch(command, self.log, self._record, cwd=self.folder)

    def _java_options(self, jars: Path) -> Sequence[str]:
        if os.environ.get(BENCH):
            return _JVM_BENCH
        prepared = QuickStart.of(java(), jars, JVM_QUICK)
        return (*JVM_QUICK, *(self._archiving or (prepared.java_options() if prepared else ())))

    def wait_started(self, deadline: float) -> None:
        """Return when the port answers and the log says so: the port alone opens before the controllers know the
        broker.
        """
        while not (answers(self.port) and self._says_started()):
            last = f"the end of {self.log}:\n{tail(self.log, offset=self._log_start)}"
            if self.process is None:
                if self.release.zookeeper and zookeeper.STILL_THERE in since(self.log, self._log_start):
                    self.launch(kafka_jars(release=self.release))
                    continue
                named = complaints(self.log, offset=self._log_start)
                raise StackError(
                    f"{self} ended while starting\n{named}\n{last}", "the log names the cause; Java must be 17 or newer"
                )
            if time.monotonic() > deadline:
                raise StackError(
                    f"{self} has not started within {START_SECONDS} s; {last}", "see the log; free memory or processors"
                )
            time.sleep(0.1)

    def _says_started(self) -> bool:
        said = since(self.log, self._log_start)
        return any(line.format(self.node_id) in said for line in STARTED)

    def kill(self) -> None:
        """SIGKILL, as a machine that loses power; returns when the process is gone."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM, then SIGKILL after a while: a quorum that shuts down together cannot agree on its last changes."""
        self._end(signal.SIGTERM)

    def _end(self, signum: signal.Signals) -> None:
        end(self._record, signum, str(self), STOP_SECONDS)


class KafkaCluster:
    """A cluster in the folder ``state/name``. It survives this program; the same name and folder find it again.

    ``ports`` are the brokers' client ports; without it those of the last start are used where they are free, else new
    ones. ``extra`` are more lines for every server.properties. ``proxied`` gives each broker a second client listener
    behind a proxy: (the port it listens on, the proxy's port that it advertises); brokers talk to each other directly.
    ``proxied_protocol`` is what clients speak there.
    ``listeners`` are further client listeners of a single broker: the port and the security protocol of each name.
    ``release`` is the version of Kafka. ``archiving`` are the Java options with which `training` starts a broker.
    """

    def __init__(
        self,
        name: str,
        state: Path,
        brokers: int = 1,
        ports: Sequence[int] | None = None,
        extra: Mapping[str, str] | None = None,
        proxied: Sequence[tuple[int, int]] | None = None,
        proxied_protocol: str = "PLAINTEXT",
        listeners: Mapping[str, tuple[int, str]] | None = None,
        release: Release = CURRENT,
        archiving: Sequence[str] = (),
    ) -> None:
        if ports is not None and len(ports) != brokers:
            raise StackError(
                f"cluster {name}: {brokers} brokers, but {len(ports)} ports", "name one port for each broker"
            )
        self.name = name
        self.folder = Path(state).resolve() / name
        self.size = brokers
        self._asked = list(ports) if ports is not None else None
        self._extra = dict(extra or {})
        self._proxied = list(proxied) if proxied is not None else None
        self._proxied_protocol = proxied_protocol
        self._listeners = dict(listeners or {})
        self.release = release
        self._archiving = archiving
        self._brokers: list[Broker] = []
        self._load()

    @property
    def bootstrap(self) -> str:
        """``bootstrap.servers`` for clients; known once the cluster was started."""
        if not self._brokers:
            raise StackError(f"cluster {self.name} was never started in {self.folder}", "start it first")
        return ",".join(f"{LOOPBACK}:{broker.port}" for broker in self._brokers)

    @property
    def brokers(self) -> Sequence[Broker]:
        return tuple(self._brokers)

    @property
    def running(self) -> bool:
        """Whether every broker's process lives."""
        return bool(self._brokers) and all(broker.process for broker in self._brokers)

    def broker(self, index: int) -> Broker:
        """The broker at ``index``, from 0."""
        return self._brokers[index]

    def start(self) -> None:
        """Start every broker that does not run and wait until all serve. Starting what runs changes nothing."""
        if self.running:
            return
        jars = self.prepare()
        deadline = time.monotonic() + START_SECONDS
        try:
            if self.release.zookeeper:
                zookeeper.start(self.folder, self._controller_ports[0], jars, _LOG_SETTINGS, deadline)
            for broker in self._brokers:
                broker.launch(jars)
            for broker in self._brokers:
                broker.wait_started(deadline)
        except BaseException:
            self.stop()
            raise

    def prepare(self) -> Path:
        """Settle ports, write properties and format what is new, unless a broker runs. Returns the folder of jars."""
        java()
        jars = kafka_jars(release=self.release)
        self.folder.mkdir(parents=True, exist_ok=True)
        if not any(broker.process for broker in self._brokers):
            self._settle_ports()
            self._write_properties()
            if not self.release.zookeeper:
                self._format(jars)
        return jars

    def stop(self) -> None:
        """Stop every broker; the data stays. Stopping what does not run changes nothing."""
        self._end(Broker.stop)

    def kill(self) -> None:
        """SIGKILL for every process; the data stays."""
        self._end(Broker.kill)

    def _end(self, end_broker: Callable[[Broker], None]) -> None:
        if self._brokers:
            with ThreadPoolExecutor(self.size) as pool:
                list(pool.map(end_broker, self._brokers))
        zookeeper.stop(self.folder)

    def wipe(self) -> None:
        """Stop, and forget everything that was stored."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
        self._brokers = []

    @property
    def _facts(self) -> Path:
        return self.folder / "cluster.json"

    def _load(self) -> None:
        if self._facts.exists():
            facts = json.loads(self._facts.read_text())
            self.size = len(facts["ports"])
            self._use(facts["cluster_id"], facts["ports"], facts["controller_ports"])

    def _use(self, cluster_id: str, ports: Sequence[int], controller_ports: Sequence[int]) -> None:
        self._cluster_id, self._controller_ports = cluster_id, list(controller_ports)
        self._brokers = [
            Broker(self.name, self.folder, index + 1, port, self.release, self._archiving)
            for index, port in enumerate(ports)
        ]

    def _settle_ports(self) -> None:
        known = [broker.port for broker in self._brokers]
        ports = self._asked or known
        for port in self._asked or ():
            if is_taken(port):
                raise StackError(
                    f"port {port} is taken: cluster {self.name} cannot listen there",
                    "stop what listens there, or choose another port",
                )
        if not ports or any(map(is_taken, ports)):
            ports = free_ports(self.size)
        controllers = self._controller_ports if known else []
        if not controllers or any(map(is_taken, controllers)) or set(controllers) & set(ports):
            controllers = free_ports(self.size, avoid=ports)
        self._use(self._cluster_id if known else new_id(), ports, controllers)
        facts = {"cluster_id": self._cluster_id, "ports": list(ports), "controller_ports": list(controllers)}
        self._facts.write_text(json.dumps(facts) + "\n")

    def _write_properties(self) -> None:
        for broker, controller_port in zip(self._brokers, self._controller_ports, strict=True):
            lines = {**self._shared_properties(), **_own_properties(broker, controller_port)}
            if self.release.zookeeper:
                lines = zookeeper.properties(lines, self._controller_ports[0])
            lines |= self._extra
            if self._proxied is not None:
                lines |= _listening(lines, "PROXIED", self._proxied_protocol, *self._proxied[broker.node_id - 1])
            for name, (port, protocol) in self._listeners.items():
                lines |= _listening(lines, name, protocol, port, port)
            broker.properties.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))

    def _shared_properties(self) -> dict[str, str]:
        replicas, in_sync = min(3, self.size), 2 if self.size >= 3 else 1
        voters = (f"{index + 1}@{LOOPBACK}:{port}" for index, port in enumerate(self._controller_ports))
        return {
            "process.roles": "broker,controller",
            "controller.quorum.voters": ",".join(voters),
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "auto.create.topics.enable": "false",
            "default.replication.factor": str(replicas),
            "min.insync.replicas": str(in_sync),
            "offsets.topic.replication.factor": str(replicas),
            "transaction.state.log.replication.factor": str(replicas),
            "transaction.state.log.min.isr": str(in_sync),
            # 4 instead of 50 partitions, and 2 MB instead of 128 MB for the cleaner: small machines, quick starts.
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.num.partitions": "4",
            "log.cleaner.dedupe.buffer.size": "2097152",
            "group.initial.rebalance.delay.ms": "0",
            # Otherwise the active controller writes a record every half second: a fifth of what an idle broker does.
            "metadata.max.idle.interval.ms": "0",
            # A killed broker may come back when its session has ended: 5 s instead of 9 s, with a heartbeat every
            # second.
            "broker.session.timeout.ms": "5000",
            "broker.heartbeat.interval.ms": "1000",
            # Kafka's default looks for transactions past their time-out every 10 s.
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
        }

    def _format(self, jars: Path) -> None:
        fresh = [broker for broker in self._brokers if not (broker.data / META).exists()]
        if fresh:
            with ThreadPoolExecutor(len(fresh)) as pool:
                list(pool.map(lambda broker: self._format_one(jars, broker), fresh))

    def _format_one(self, jars: Path, broker: Broker) -> None:
        prepared = QuickStart.of(java(), jars, JVM_QUICK)
        if prepared is not None and prepared.format(broker.data, self._cluster_id, broker.node_id):
            return
        tool = [
            java(),
            "-Xmx128m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            f"{jars}/*",
            "kafka.tools.StorageTool",
        ]
        command = [*tool, "format", "-t", self._cluster_id, "-c", str(broker.properties)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=START_SECONDS)
        except subprocess.TimeoutExpired as error:
            what = f"formatting the storage of {broker} has not ended within {START_SECONDS} s"
            raise StackError(what, "free memory or processors, then run the same command again") from error
        if done.returncode:
            raise StackError(
                f"formatting the storage of {broker} failed:\n{done.stdout}{done.stderr}",
                f"mend what it names, or delete {self.folder}",
            )


def _own_properties(broker: Broker, controller_port: int) -> dict[str, str]:
    client = f"PLAINTEXT://{LOOPBACK}:{broker.port}"
    return {
        "node.id": str(broker.node_id),
        "listeners": f"{client},CONTROLLER://{LOOPBACK}:{controller_port}",
        "advertised.listeners": client,
        "log.dirs": str(broker.data),
    }


def _listening(lines: Mapping[str, str], name: str, protocol: str, port: int, advertised: int) -> dict[str, str]:
    """One more client listener. Who connects to it is told the address that it advertises."""
    return {
        "listeners": f"{lines['listeners']},{name}://{LOOPBACK}:{port}",
        "advertised.listeners": f"{lines['advertised.listeners']},{name}://{LOOPBACK}:{advertised}",
        "listener.security.protocol.map": f"{lines['listener.security.protocol.map']},{name}:{protocol}",
        "inter.broker.listener.name": "PLAINTEXT",
    }


def start_all(clusters: Iterable[KafkaCluster]) -> None:
    """Start clusters at the same time; raises the first failure after all have ended starting."""
    clusters = list(clusters)
    for version in {cluster.release.version for cluster in clusters}:
        kafka_jars(release=RELEASES[version])
    with ThreadPoolExecutor(len(clusters)) as pool:
        list(pool.map(KafkaCluster.start, clusters))


def stop_all(clusters: Iterable[KafkaCluster]) -> None:
    """Stop clusters at the same time."""
    clusters = list(clusters)
    with ThreadPoolExecutor(len(clusters)) as pool:
        list(pool.map(KafkaCluster.stop, clusters))
