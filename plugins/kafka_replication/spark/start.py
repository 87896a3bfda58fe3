"""The start of a Spark process that runs this package: the driver's entry point, and the path to the code.

spark-submit starts this file if the package is installed, else `spark_jobs/replicate_ranges.py`.

This module imports nothing of PySpark, because `prefer_linked` first sets the place to import PySpark from.
"""

from __future__ import annotations

import sys
from pathlib import Path

import kafka_replication
from kafka_replication.runtime.garbage import loading


def prefer_linked() -> None:
    """In local mode, import PySpark from the launcher's folder of links (`workspace.link_code`).

    spark-submit puts ``pyspark.zip`` first. A zip has no compiled modules, so every process would compile PySpark anew.
    On a cluster this package itself comes from a zip, and nothing changes.
    """
    package = Path(kafka_replication.__file__).parent
    folder = str(package.parent)
    if package.is_symlink() and (package.parent / "pyspark").is_symlink() and folder in sys.path:
        sys.path.remove(folder)
        sys.path.insert(0, folder)


def main() -> None:
    """The driver's entry point: ``SCRIPT SOCKET``."""
    prefer_linked()
    with loading():
        from kafka_replication.spark import driver

    driver.main()


if __name__ == "__main__":
    main()
