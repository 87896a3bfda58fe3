"""A StatsD server that hears what Airflow's tasks send."""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping
from queue import SimpleQueue

PREFIX, SO_FAR = "airflow.kafka_replication.", "so far"


class StatsD:
    """One datagram a metric, as ``airflow.NAME:VALUE|TYPE``. A thread reads them, because the buffer of a socket is
    small, and Airflow sends much.
    """

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._heard: SimpleQueue[str] = SimpleQueue()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    @property
    def environment(self) -> Mapping[str, str]:
        """The settings of an Airflow that sends to it."""
        host, port = self._socket.getsockname()
        values = {"STATSD_ON": "True", "STATSD_HOST": host, "STATSD_PORT": str(port)}
        return {f"AIRFLOW__METRICS__{name}": value for name, value in values.items()}

    def heard(self) -> list[tuple[str, str]]:
        """Name and value of the package's metrics since the last call, in their order; without Airflow's prefix."""
        self._send(SO_FAR)  # it arrives behind all that was sent before
        said = iter(self._heard.get, SO_FAR)
        metrics = [metric.removeprefix(PREFIX).rpartition(":") for metric in said]
        return [(name, value) for name, _, value in metrics]

    def close(self) -> None:
        self._send("")
        self._thread.join()
        self._socket.close()

    def _read(self) -> None:
        while said := self._socket.recv(2_000).decode():
            if said.startswith((PREFIX, SO_FAR)):
                self._heard.put(said)

    def _send(self, text: str) -> None:
        self._socket.sendto(text.encode(), self._socket.getsockname())
