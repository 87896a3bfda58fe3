"""Finding Java."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from stack.errors import StackError


def java() -> str:
    """The Java to run: the one of ``JAVA_HOME``, else the first on ``PATH``.

    Raises StackError naming what to install.
    """
    home = os.environ.get("JAVA_HOME")
    if home and os.access(Path(home) / "bin" / "java", os.X_OK):
        return str(Path(home) / "bin" / "java")
    found = shutil.which("java")
    if found is None:
        raise StackError(
            "no java on the PATH, and JAVA_HOME does not point at one: Kafka and Spark need Java 17 or newer",
            "install it (Debian and Ubuntu: apt-get install openjdk-17-jre-headless; macOS: brew install openjdk@17),"
            " or set JAVA_HOME",
        )
    return found
