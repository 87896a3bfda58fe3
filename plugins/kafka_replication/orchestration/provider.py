"""This package as ``airflow providers`` shows it. Imports no other module of it, because Airflow asks on each start.

`kafka`, `spark` and `apprise` are connection types of their providers, and so is `opensearch` where its provider is
installed. There is no notifier of its own: a file names those of others.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, Final

HOOKS: Final = "kafka_replication.orchestration.target_hooks"
_FLAG: Final = {"type": ["boolean", "null"]}
_TEXT: Final = {"type": ["string", "null"]}
OPENSEARCH: Final[Mapping[str, Any]] = {
    "connection-type": "opensearch",
    "hook-class-name": f"{HOOKS}.OpenSearchHook",
    "hook-name": "OpenSearch",
    "ui-field-behaviour": {
        "hidden-fields": [],
        "relabeling": {"schema": "http or https"},
        "placeholders": {"host": "opensearch.example.com", "port": "9200", "schema": "https"},
    },
    "conn-fields": {
        "use_ssl": {"label": "TLS", "schema": _FLAG},
        "verify_certs": {"label": "Check the server's certificate", "schema": {**_FLAG, "default": True}},
        "ca_certs": {
            "label": "File of the authorities",
            "description": "Also where Spark's workers run, as the two files below.",
            "schema": _TEXT,
        },
        "client_cert": {"label": "File of the client's certificate", "schema": _TEXT},
        "client_key": {"label": "File of the client's key", "schema": _TEXT},
        "api_key": {"label": "API key", "schema": {**_TEXT, "format": "password"}},
    },
}
HBASE: Final[Mapping[str, Any]] = {
    "connection-type": "hbase",
    "hook-class-name": f"{HOOKS}.HBaseHook",
    "hook-name": "HBase (Thrift2 gateway)",
    "ui-field-behaviour": {
        "hidden-fields": ["schema", "login", "password"],
        "relabeling": {"host": "Host of the gateway"},
        "placeholders": {"host": "gateway.example.com", "port": "9090"},
    },
    "conn-fields": {
        "transport": {
            "label": "Transport",
            "description": "buffered (the default) or framed, as the gateway was started.",
            "schema": _TEXT,
        },
        "protocol": {
            "label": "Protocol",
            "description": "binary (the default) or compact, as the gateway was started.",
            "schema": _TEXT,
        },
    },
}


def get_provider_info() -> dict[str, Any]:
    """As `provider.yaml` says it. A connection type that two providers have makes Airflow warn on each start."""
    theirs = find_spec("airflow.providers.opensearch") is not None
    return {
        "package-name": "kafka-replication",
        "name": "Kafka replication",
        "description": "Exactly-once, bounded, verified replication of Kafka topics",
        "connection-types": [dict(HBASE)] if theirs else [dict(HBASE), dict(OPENSEARCH)],
    }
