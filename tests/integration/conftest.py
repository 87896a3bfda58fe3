"""The fixtures of every test here."""

from tests.support.failed import with_failures
from tests.support.line import behind, line
from tests.support.receipt_reads import receipts_read_from
from tests.support.received import received
from tests.support.scenes import clusters, own_scene, own_source_scene, scene, source_data

__all__ = [
    "behind",
    "clusters",
    "line",
    "own_scene",
    "own_source_scene",
    "receipts_read_from",
    "received",
    "scene",
    "source_data",
    "with_failures",
]
