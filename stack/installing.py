"""``python stack/installing.py COMMAND ...``: run pip or uv, and show how far it is instead of every line that it says.

In a terminal one line is written again and again, else there is a line for each tenth of the packages of
``requirements.lock``. If the command fails, the end of what it said is shown. Uses the standard library only: it runs
before anything is installed.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path

LOCK = Path(__file__).resolve().parent.parent / "requirements.lock"
LARGE_MEGABYTES = 20
KEPT = 40  # lines that are shown if it fails

_PACKAGE = re.compile(r"(Collecting|Requirement already satisfied:|Ignoring) \S+")
_DOWNLOAD = re.compile(r"\s*Downloading (\S+) \((\d+(?:\.\d+)?) ?(kB|MB|GB|KiB|MiB|GiB)\)")
_INSTALL = re.compile(r"(Installing collected packages|Prepared \d+ packages)")


def packages(lock: Path = LOCK) -> int:
    """How many packages the lock file names."""
    return sum(bool(re.match(r"\w", line)) for line in lock.read_text().splitlines())


def follow(lines: Iterable[str], total: int, say: Callable[[str], None]) -> None:
    """Say each tenth of the packages, each large download, and the beginning of the installation."""
    seen = said = 0
    for line in lines:
        if _PACKAGE.match(line):
            seen += 1
            if 10 * seen // total > said and seen <= total:
                said = 10 * seen // total
                say(f"{seen} of {total} packages ({10 * said}%)")
        elif (download := _DOWNLOAD.match(line)) and _megabytes(download[2], download[3]) >= LARGE_MEGABYTES:
            say(f"downloading {download[1].rpartition('/')[2]} ({download[2]} {download[3]})")
        elif _INSTALL.match(line):
            say("all are here; installing them")


def _megabytes(number: str, unit: str) -> float:
    return float(number) * {"k": 0.001, "K": 0.001, "M": 1, "G": 1000}[unit[0]]


def run(command: list[str], say: Callable[[str], None]) -> int:
    """The exit code of the command. If it failed, the end of what it said is on stderr."""
    last: deque[str] = deque(maxlen=KEPT)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as tool:
        assert tool.stdout is not None

        def lines() -> Iterable[str]:
            for line in tool.stdout or ():
                last.append(line)
                yield line

        follow(lines(), max(1, packages()), say)
    if tool.returncode:
        sys.stderr.write("\n" + "".join(last))
    return tool.returncode


def _rewrite(text: str) -> None:
    """In a terminal: in place of the text before."""
    sys.stdout.write(f"\r\x1b[2Kinstalling: {text}")
    sys.stdout.flush()


def main() -> int:
    terminal = sys.stdout.isatty()
    code = run(sys.argv[1:], _rewrite if terminal else lambda text: print(f"installing: {text}", flush=True))
    if terminal:
        print()
    return code


if __name__ == "__main__":
    sys.exit(main())
