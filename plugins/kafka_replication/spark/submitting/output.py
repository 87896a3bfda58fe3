"""The file that takes what Spark prints, on the command line."""

from __future__ import annotations

import os
import re
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO

from kafka_replication.model.errors import BadInput

READ_SECONDS = 2.0  # for the rest of the log of a spark-submit that has ended


class OutputFile:
    """A file in the user's temporary folder, readable only by this user. It is made when Spark first starts."""

    def __init__(self, replication: str) -> None:
        self._replication = replication
        self.path: Path | None = None

    def open(self) -> IO[bytes]:
        """Open it for adding. The caller closes it. Raises BadInput if it cannot be made."""
        try:
            if self.path is None:
                name = re.sub(r"[^A-Za-z0-9._-]", "_", self._replication)
                number, path = tempfile.mkstemp(prefix=f"kafka-replication-{name}-", suffix=".log")
                self.path = Path(path)
                return os.fdopen(number, "ab")
            return self.path.open("ab")
        except OSError as e:
            raise BadInput(
                f"no file for Spark's log can be made in {tempfile.gettempdir()}: {e.strerror}",
                "set TMPDIR to a folder that is yours; or use --verbose, which needs no file",
            ) from e

    def remove(self) -> None:
        if self.path is not None:
            with suppress(OSError):
                self.path.unlink(missing_ok=True)
            self.path = None
