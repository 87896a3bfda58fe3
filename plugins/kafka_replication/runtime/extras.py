"""Names the extra of this package that installs a missing one."""

from __future__ import annotations

from typing import Final

# The modules that each extra brings. Whoever imports one of them where it is missing says so with `install`.
EXTRAS: Final = {
    "airflow": ("airflow",),
    "spark": ("pyspark", "py4j"),
    "batch": ("kio", "crc32c", "scramp", "cryptography", "lz4", "cramjam", "zstandard"),
    "alerts": ("apprise",),
    "opensearch": ("opensearchpy",),
    "hbase": ("thriftpy2",),
    "metrics": ("prometheus_client",),
    "openlineage": ("openlineage",),
}


def install(module: str) -> str:
    """The remedy for a missing module, for whoever has the wheel and whoever has this repository."""
    for extra, modules in EXTRAS.items():
        if module.partition(".")[0] in modules:
            return f"pip install 'kafka-replication[{extra}]', or install requirements.txt"
    return "install requirements.txt"


def without(missing: ImportError) -> str:
    """The reason why something is not done where a package is missing."""
    return f"{missing.name} is not installed ({install(missing.name or '')})"
