"""The fixtures of every test here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafka_replication.connections import SparkConnection
from tests.spark.standalone_master import standalone_master
from tests.support.scenes import clusters, scene

__all__ = ["clusters", "scene"]


@pytest.fixture(scope="package")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkConnection]:
    """A Spark cluster on this machine; the tests that use it run in one process."""
    with standalone_master(tmp_path_factory.mktemp("spark-cluster"), workers=1) as master:
        yield master.connection
