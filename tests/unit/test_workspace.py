"""The private folder of a launcher: what is in it, and what killed processes left of theirs."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_replication.model.errors import Unreachable
from kafka_replication.runtime.identity import IDENTITY, ProcessIdentity
from kafka_replication.spark import workspace as module
from kafka_replication.spark.channel import Listener
from kafka_replication.spark.launcher import Launcher
from kafka_replication.spark.workspace import Workspace, workspace
from tests.support.jobs import job_with

JOB = job_with()


@pytest.fixture(autouse=True)
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="kr-") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


@pytest.fixture
def another() -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs until the test ends it."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def left_behind(folder: Path, owner: ProcessIdentity | None) -> Path:
    """What a process leaves when it is killed while its job runs."""
    made = folder / f"{module.PREFIX}left"
    made.mkdir()
    here = Workspace(made)
    here.package.write_bytes(b"the package")
    if owner is not None:
        here.owner.write_bytes(IDENTITY.dump_json(owner))
    return made


def test_the_next_job_removes_what_a_killed_process_left(temporary: Path, another: subprocess.Popen[bytes]) -> None:
    left = left_behind(temporary, ProcessIdentity.of(another.pid))
    with workspace():
        assert left.exists(), "its owner lives"
    another.kill()
    another.wait()
    with workspace() as here:
        assert [path.name for path in temporary.iterdir()] == [here.folder.name]
    assert list(temporary.iterdir()) == []


def test_a_pid_that_was_given_out_again_does_not_protect_it(temporary: Path) -> None:
    mine = ProcessIdentity.own()
    left = left_behind(temporary, replace(mine, started=mine.started - 60))
    module.sweep()
    assert not left.exists()


@pytest.mark.parametrize("host", [None, "another-host"])
def test_what_this_machine_cannot_judge_stays(temporary: Path, host: str | None) -> None:
    """No owner is known yet, or it lives on a machine that shares this folder."""
    left = left_behind(temporary, ProcessIdentity(host, 2**22, 1.0) if host else None)
    module.sweep()
    assert left.exists()


@pytest.mark.parametrize(
    "field", [{"pid_space": "another boot pid:[1] time:[1]"}, {"pid_space": ""}], ids=["other", "unknown"]
)
def test_what_belongs_to_another_container_of_this_host_name_stays(temporary: Path, field: dict[str, str]) -> None:
    """Containers can share a host name and this folder, and count their processes each by itself."""
    ended = ProcessIdentity(ProcessIdentity.own().host, 2**22, 1.0, **field)
    left = left_behind(temporary, ended)
    module.sweep()
    assert left.exists()


def test_where_the_system_has_no_pid_spaces_the_host_decides(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS has neither /proc nor pid spaces."""
    monkeypatch.setattr(Path, "readlink", lambda _: (_ for _ in ()).throw(FileNotFoundError))
    left = left_behind(temporary, ProcessIdentity(ProcessIdentity.own().host, 2**22, 1.0))
    module.sweep()
    assert not left.exists()


def test_what_belongs_to_another_user_stays(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = ProcessIdentity.own()
    left = left_behind(temporary, replace(mine, started=mine.started - 60))
    monkeypatch.setattr(os, "getuid", lambda: left.stat().st_uid + 1)
    module.sweep()
    assert left.exists()


def test_a_link_is_not_followed(temporary: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    mine = ProcessIdentity.own()
    real = left_behind(elsewhere, replace(mine, started=mine.started - 60))
    (temporary / f"{module.PREFIX}link").symlink_to(real)
    module.sweep()
    assert real.exists()


def test_links_to_the_code_are_removed_and_the_code_stays(temporary: Path, tmp_path: Path) -> None:
    package = tmp_path / "pyspark"
    package.mkdir()
    (package / "__init__.py").write_text("")
    with workspace() as here:
        module.link_code(here.links, package)
        assert sorted(path.name for path in here.links.iterdir()) == ["kafka_replication", "pyspark"]
        assert (here.links / "kafka_replication" / "__init__.py").samefile(module.PACKAGE / "__init__.py")
    assert list(temporary.iterdir()) == []
    assert (package / "__init__.py").exists() and (module.PACKAGE / "__init__.py").exists()


def test_the_package_is_zipped_whatever_its_files_are_dated(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reproducible images date all files 1970."""
    package = tmp_path_factory.mktemp("site") / "kafka_replication"
    package.mkdir()
    (package / "__init__.py").write_text("")
    os.utime(package / "__init__.py", (0, 0))
    monkeypatch.setattr(module, "PACKAGE", package)
    with workspace() as here:
        module.write_package(here.package)
        assert zipfile.ZipFile(here.package).namelist() == ["kafka_replication/__init__.py"]


def test_the_folder_is_for_its_owner_alone_and_holds_no_job(temporary: Path) -> None:
    with workspace() as here:
        assert stat.S_IMODE(here.folder.stat().st_mode) == 0o700
        assert stat.S_IMODE(here.owner.stat().st_mode) == 0o600
        assert sorted(path.name for path in here.folder.iterdir()) == ["owner.json"]
    assert list(temporary.iterdir()) == []


def test_a_path_that_is_too_long_for_a_socket_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("x" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with workspace() as here, closing(Listener(here.socket)):
        assert here.folder.parent == Path("/tmp")
    assert not here.folder.exists()


class Ended:
    """A spark-submit that ends before the driver answers."""

    master = "local[1,4]"

    def start(self, here: Workspace, name: str, hear: Callable[[str], object]) -> None:
        assert here.owner.exists() and name == "kafka-replication orders-dr"

    def wait(self, seconds: float) -> str | None:
        return "exit code 137"

    def stop(self) -> None: ...

    def log_place(self) -> str:
        return "in a file"


def test_spark_that_does_not_start_is_unreachable_and_the_folder_is_gone(temporary: Path) -> None:
    with Launcher(Ended) as spark, pytest.raises(Unreachable, match="exit code 137") as error:
        spark.submit(JOB, lambda results: None)
    assert "see Spark's log in a file" in error.value.remedy
    assert list(temporary.iterdir()) == []


def test_the_folder_is_gone_when_the_submission_fails(temporary: Path) -> None:
    class Broken(Ended):
        def start(self, here: Workspace, name: str, hear: Callable[[str], object]) -> None:
            raise OSError("no such file")

    with Launcher(Broken) as spark, pytest.raises(OSError, match="no such file"):
        spark.submit(JOB, lambda results: None)
    assert list(temporary.iterdir()) == []
