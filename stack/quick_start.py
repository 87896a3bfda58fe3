"""A broker's quick start: Java's class-data archive, which halves what a start costs, and a formatted storage to copy.

`training` makes both, outside of any start. Without them a broker only starts more slowly.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stack.folders import cache_folder

ARCHIVE = "classes.jsa"
STORAGE = "storage"
META = "meta.properties"
# Java objects to an archive in the broker's log, where people look for errors.
_SILENT = ("-Xlog:cds*=off", "-Xlog:class+path=off")
# Java splits its list of archives at the colon.
_UNFIT = frozenset(":")


@dataclass(frozen=True, slots=True)
class QuickStart:
    """What was made for one Java, one set of jars and one set of Java options."""

    folder: Path

    @classmethod
    def of(cls, java: str, jars: Path, options: Sequence[str]) -> QuickStart | None:
        """Its place in the cache; None for a Java that says nothing of itself, or a folder that Java cannot name."""
        program = Path(java).resolve()
        try:
            release = (program.parents[1] / "release").read_text(errors="replace")
            stamps = [_stamp(path) for path in sorted((program.parents[1] / "lib" / "server").iterdir())]
            stamps += [_stamp(path) for path in sorted(jars.glob("*.jar"))]
        except OSError:
            return None
        key = hashlib.sha256("\n".join([str(program), release, *stamps, *options]).encode()).hexdigest()[:16]
        folder = cache_folder() / f"kafka-quick-start-{key}"
        return None if _UNFIT & set(str(folder)) else cls(folder)

    def java_options(self) -> Sequence[str]:
        """Options for a broker's Java; empty without an undamaged archive: Java 17 crashes on one that was cut off."""
        archive = self.folder / ARCHIVE
        try:
            sound = (self.folder / f"{ARCHIVE}.sha256").read_text() == _digest(archive)
        except OSError:
            return ()
        return (f"-XX:SharedArchiveFile={archive}", *_SILENT) if sound else ()

    def format(self, data: Path, cluster_id: str, node_id: int) -> bool:
        """Lay down an empty storage as Kafka's own tool would; False if there is none to copy."""
        try:
            shutil.copytree(self.folder / STORAGE, data)
        except FileNotFoundError:
            return False
        own = {"cluster.id": cluster_id, "node.id": str(node_id), "directory.id": new_id()}
        meta = data / META
        named = [(line.partition("=")[0], line) for line in meta.read_text().splitlines()]
        lines = [f"{name}={own[name]}" if name in own else line for name, line in named]
        meta.write_text("\n".join(lines) + "\n")
        return True

    @contextmanager
    def making(self) -> Iterator[Path | None]:
        """Yield an empty folder to put the archive and the storage into; None if they were made.

        One process at a time makes them, others wait. What fails is not tried again: the folder then lacks it.
        """
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with self.folder.with_suffix(".busy").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if self.folder.exists():
                yield None
                return
            unfinished = self.folder.with_suffix(".unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            try:
                yield unfinished
                archive = unfinished / ARCHIVE
                if archive.exists():
                    archive.with_name(f"{ARCHIVE}.sha256").write_text(_digest(archive))
            finally:
                unfinished.rename(self.folder)


def _stamp(path: Path) -> str:
    status = path.stat()
    return f"{path} {status.st_size} {status.st_mtime_ns}"


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def new_id() -> str:
    """A new id as Kafka writes ids. It does not begin with a minus, which StorageTool would read as an option."""
    text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    return text.replace("-", "A", 1) if text.startswith("-") else text
