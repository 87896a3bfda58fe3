"""The private folder of a submitted job: what is in it, and what killed processes left of theirs."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_replication.config import Copy
from kafka_replication.runtime.identity import IDENTITY, ProcessIdentity
from kafka_replication.spark import workspace as module
from kafka_replication.spark.jobs import JOB, Job, JobResult
from kafka_replication.spark.submit import SubmitLauncher
from kafka_replication.spark.workspace import Workspace, workspace

JOB_WITH_PASSWORD = Job(
    kind="copy",
    replication="orders-dr",
    run_id="run-1",
    source={"sasl.password": "secret"},
    target={},
    settings=Copy(),
)


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


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
    here.job.write_bytes(JOB.dump_json(JOB_WITH_PASSWORD))
    if owner is not None:
        here.owner.write_bytes(IDENTITY.dump_json(owner))
    return made


def test_the_next_job_removes_what_a_killed_process_left(temporary: Path, another: subprocess.Popen[bytes]) -> None:
    left = left_behind(temporary, ProcessIdentity.of(another.pid))
    with workspace(JOB_WITH_PASSWORD):
        assert left.exists(), "its owner lives"
    another.kill()
    another.wait()
    with workspace(JOB_WITH_PASSWORD) as here:
        assert [path.name for path in temporary.iterdir()] == [here.folder.name]
    assert list(temporary.iterdir()) == []


def test_a_pid_that_was_given_out_again_does_not_protect_it(temporary: Path) -> None:
    mine = ProcessIdentity.own()
    left = left_behind(temporary, ProcessIdentity(mine.host, mine.pid, mine.started - 60))
    module.sweep()
    assert not left.exists()


@pytest.mark.parametrize("host", [None, "another-host"])
def test_what_this_machine_cannot_judge_stays(temporary: Path, host: str | None) -> None:
    """No owner is known yet, or it lives on a machine that shares this folder."""
    left = left_behind(temporary, ProcessIdentity(host, 2**22, 1.0) if host else None)
    module.sweep()
    assert left.exists()


def test_what_belongs_to_another_user_stays(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = ProcessIdentity.own()
    left = left_behind(temporary, ProcessIdentity(mine.host, mine.pid, mine.started - 60))
    monkeypatch.setattr(os, "getuid", lambda: left.stat().st_uid + 1)
    module.sweep()
    assert left.exists()


def test_a_link_is_not_followed(temporary: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    mine = ProcessIdentity.own()
    real = left_behind(elsewhere, ProcessIdentity(mine.host, mine.pid, mine.started - 60))
    (temporary / f"{module.PREFIX}link").symlink_to(real)
    module.sweep()
    assert real.exists()


def test_the_package_is_zipped_whatever_its_files_are_dated(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reproducible images date all files 1970."""
    package = tmp_path_factory.mktemp("site") / "kafka_replication"
    package.mkdir()
    (package / "__init__.py").write_text("")
    os.utime(package / "__init__.py", (0, 0))
    monkeypatch.setattr(module, "PACKAGE", package)
    with workspace(JOB_WITH_PASSWORD) as here:
        assert zipfile.ZipFile(here.package).namelist() == ["kafka_replication/__init__.py"]


def test_the_folder_is_gone_when_the_submission_fails(temporary: Path) -> None:
    class Broken:
        def run(self, job: Job, here: Workspace) -> str:
            assert here.job.exists()
            raise OSError("no such file")

        def stop(self) -> None: ...

    with SubmitLauncher(Broken()) as spark, pytest.raises(OSError, match="no such file"):
        spark.submit(JOB_WITH_PASSWORD)
    assert list(temporary.iterdir()) == []


def test_a_result_counts_whatever_spark_ended_with(temporary: Path) -> None:
    class Killed:
        def run(self, job: Job, here: Workspace) -> str:
            here.result.write_text('{"error": "Spark gave up"}')
            return "exit code 137"

        def stop(self) -> None: ...

    with SubmitLauncher(Killed()) as spark:
        assert spark.submit(JOB_WITH_PASSWORD) == JobResult(error="Spark gave up")
