"""Free ports on loopback."""

from __future__ import annotations

import contextlib
import os
import random
import socket
from collections.abc import Collection
from itertools import islice
from pathlib import Path
from threading import Lock

LOWEST = 15_000
LOOPBACK = "127.0.0.1"
SHARE = "KAFKA_REPLICATION_PORT_SHARE"

_choosing, _given = Lock(), set[int]()


def is_taken(port: int) -> bool:
    """Whether a server could not listen on this port now.

    A port that is only in TIME_WAIT counts as free, as it does for Java.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return True
    return False


def answers(port: int) -> bool:
    """Whether a server accepts connections on this port."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((LOOPBACK, port)) == 0


def free_ports(count: int, avoid: Collection[int] = ()) -> list[int]:
    """Ports that nothing listens on and that this process was not given before, as their servers may only be starting.

    They are chosen at random **below** the range that the system gives to outgoing connections.

    A port of that range would do until its broker is killed: then any client's outgoing connection may take it, and a
    client that keeps trying to reach the dead broker may even be connected to itself, so that the broker cannot come
    back.
    """
    number, shares = map(int, os.environ.get(SHARE, "0/1").split("/"))
    candidates = list(range(LOWEST + number, _first_ephemeral_port(), shares))
    random.SystemRandom().shuffle(candidates)
    with _choosing:
        free = (port for port in candidates if port not in _given and port not in avoid and not is_taken(port))
        found = list(islice(free, count))
        _given.update(found)
    return found


def take_share(number: int, shares: int) -> None:
    """Let this process and its children choose from one of so many disjoint shares.

    A port stays free to others until a server listens on it, seconds after it was chosen.
    """
    os.environ[SHARE] = f"{number}/{shares}"


def _first_ephemeral_port() -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
        if first > LOWEST + 1000:
            return first
    return 32_768
