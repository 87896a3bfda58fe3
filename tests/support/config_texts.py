"""The smallest replication files, for tests of reading them."""

from __future__ import annotations

HEAD = """\
name: orders-dr
source: {connection: kafka_source}
target: {connection: kafka_target}
"""
MINIMAL = HEAD + "topics: {include: [orders]}\n"
