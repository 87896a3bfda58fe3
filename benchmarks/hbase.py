"""``python -m benchmarks.hbase``: rows a second with HBase as the target, beside the batch of happybase alone
(`hbase_client`). How it is measured: `beside_client`.

happybase is not among what `make install` installs: ``.venv/bin/pip install happybase==1.2.0``. It speaks to a gateway
of the first kind (Thrift), ours to one of the second (Thrift2); both stand before the same region server.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks import clusters
from benchmarks.beside_client import TOPIC, Written, by_client, by_us, fill, show, turns
from benchmarks.hbase_client import MODULE, Putting, put_some
from kafka_replication.runtime import stopping
from stack.hbase_server import HBaseServer
from stack.ports import LOOPBACK

OURS, LATEST = "ours", "ours, `shape: latest`"
PLAIN, ABOUT = "`happybase`", "`happybase`, the same cells"


@dataclass(frozen=True, kw_only=True)
class Place(clusters.Pair):
    """Kafka as the source, and HBase as the target."""

    server: HBaseServer
    ends: Mapping[int, int]

    @property
    def brokers(self) -> list[int]:
        """The pids of the server and of its gateways."""
        return self.server.pids

    def service(self, _: str, __: str) -> dict[str, Any]:
        return {"url": f"http://{LOOPBACK}:{self.server.port}"}

    def connection(self) -> Any:
        import happybase

        return happybase.Connection(LOOPBACK, self.server.old_port, timeout=120_000)

    def rows(self, name: str) -> int:
        table = self.connection().table(f"{name}.{TOPIC}")
        return sum(1 for _ in table.scan(columns=[b"k:value"], filter=b"KeyOnlyFilter()", batch_size=5_000))

    def delete(self, name: str) -> None:
        self.connection().delete_table(f"{name}.{TOPIC}", disable=True)


def _ours(place: Place, shape: str, name: str) -> Written:
    return by_us(place, name, {"connection": "target", "type": "hbase", "shape": shape})


def _client(place: Place, about: bool, name: str) -> Written:
    table = f"{name}.{TOPIC}"
    place.connection().create_table(table, {"k": {"max_versions": 1}})
    putting = Putting(
        source=place.source, port=place.server.old_port, topic=TOPIC, to=table, ends=place.ends, about=about
    )
    return by_client(MODULE, put_some, putting, place.brokers)


def main() -> None:
    stopping.on_signals()
    logging.getLogger("kafka_replication").setLevel(logging.ERROR)
    if find_spec("happybase") is None:
        sys.exit("happybase is missing here: .venv/bin/pip install happybase==1.2.0")
    with clusters.plain() as pair:
        server = HBaseServer("hbase", Path(pair.folder), old_gateway=True)
        server.start()
        try:
            ends = fill(pair.clusters[0].bootstrap)
            place = Place(
                folder=pair.folder,
                clusters=pair.clusters,
                source=pair.source,
                target=pair.target,
                server=server,
                ends=ends,
            )
            writers = {
                OURS: partial(_ours, place, "records"),
                LATEST: partial(_ours, place, "latest"),
                PLAIN: partial(_client, place, False),
                ABOUT: partial(_client, place, True),
            }
            done = turns(writers, place.rows, place.delete)
        finally:
            server.stop()
    show("hbase", "rows", PLAIN, done)


if __name__ == "__main__":
    main()
