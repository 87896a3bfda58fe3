"""What a terminal shows of a run, on a terminal that writes into a text."""

from __future__ import annotations

import io
import logging
import stat
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from rich.console import Console

from kafka_replication.cli import terminal_progress
from kafka_replication.cli.command_frame import Result
from kafka_replication.config import Replication
from kafka_replication.documents import as_json
from kafka_replication.model.errors import BadInput, Unreachable
from kafka_replication.reporting.progress import Progress, RunAtWork
from kafka_replication.runs.run import Run
from kafka_replication.spark import submit
from tests.support.leases import NoLease

SETTINGS = Replication.model_validate(
    {
        "name": "orders-dr",
        "source": {"connection": "a"},
        "target": {"connection": "b"},
        "topics": {"include": ["orders"]},
    }
)
HALF = Progress(
    ranges=4,
    ranges_done=2,
    offsets=100,
    offsets_done=50,
    records=1_234,
    bytes=5_000_000,
    bytes_per_second=2_500_000.0,
    seconds_left=20.0,
)


@pytest.fixture
def run() -> Run:
    nothing = cast(Any, None)
    return Run(replication=SETTINGS, clusters=nothing, store=nothing, run_id="run")


def test_a_summary_fits_beside_a_bar() -> None:
    assert terminal_progress.summary(HALF) == "50%  20 s left  2.5 MB/s  1,234 records  2/4 ranges"
    assert terminal_progress.summary(replace(HALF, throttled=100.0)).startswith(
        "50%  20 s left  held back 2 min  2.5 MB/s"
    )
    assert terminal_progress.summary(replace(HALF, offsets_done=100)).startswith("99%  reading back  2.5 MB/s")


def test_a_terminal_has_one_display_and_log_lines_above_it(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    text = io.StringIO()
    monkeypatch.setattr(sys, "stderr", text)
    console = Console(file=text, force_terminal=True, width=120)
    handler, root = logging.StreamHandler(text), logging.getLogger()
    root.addHandler(handler)
    try:
        with terminal_progress.displayed(run, console) as shown:
            assert shown.show is not None
            shown.show(HALF)
            logging.getLogger("test").error("said meanwhile")
            streams = [handler.stream]
        streams.append(handler.stream)
    finally:
        root.removeHandler(handler)
    assert [stream is text for stream in streams] == [False, True]
    assert "preparing" in text.getvalue() and "said meanwhile" in text.getvalue()
    assert text.getvalue().rstrip().endswith(f"{run.replication.name}: {HALF}")


def test_a_file_for_spark_s_log_is_private_and_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    file = submit.OutputFile("orders/dr")
    for said in (b"one\n", b"two\n"):
        with file.open() as stream:
            stream.write(said)
    [path] = tmp_path.iterdir()
    assert file.path == path and path.name.startswith("kafka-replication-orders_dr-")
    assert path.read_text() == "one\ntwo\n" and stat.S_IMODE(path.stat().st_mode) == 0o600
    file.remove()
    file.remove()
    assert list(tmp_path.iterdir()) == [] and file.path is None


def test_a_temporary_folder_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(BadInput, match="gone") as error:
        submit.OutputFile("orders").open()
    assert "TMPDIR" in error.value.remedy


@pytest.mark.parametrize("code", [0, 1])
def test_the_file_is_removed_only_if_all_went_well(
    run: Run, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made: list[submit.OutputFile] = []

    def launcher(_: object, file: submit.OutputFile) -> Any:
        made.append(file)
        return lambda: file.open().close()

    monkeypatch.setattr(terminal_progress, "launcher_for", launcher)

    def action(_: Run, launcher: Any) -> Result:
        launcher()
        return {}, "", code

    assert terminal_progress.with_spark(run, False, action) == ({}, "", code)
    files = list(tmp_path.iterdir())
    assert len(files) == code
    assert capsys.readouterr().err == "".join(f"Spark's log: {file}\n" for file in files)


def test_watching_goes_on_after_an_error_that_passes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(terminal_progress, "WATCH_SECONDS", 0)
    answers: list[str | Exception | type[BaseException]] = ["first", Unreachable("away", "wait"), "second"]
    answers += [KeyboardInterrupt]

    def read() -> str:
        answer = answers.pop(0)
        if isinstance(answer, str):
            return answer
        raise answer

    terminal_progress.watch(read)
    assert capsys.readouterr().out == "first\n\nerror: away\nremedy: wait\n\nsecond\n\n"
    answers.append(BadInput("wrong", "mend it"))
    with pytest.raises(BadInput):
        terminal_progress.watch(read)


def test_a_run_at_work_without_progress_says_so() -> None:
    at_work = RunAtWork.of(NoLease("run-1", ["orders"]).lease, None)
    assert str(at_work) == "run run-1: copying has not started"
    assert as_json(at_work) == {"run_id": "run-1", "progress": None, "target_topics": ["orders"]}
