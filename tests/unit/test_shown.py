"""What `make install` and the first `make up` say while they fetch something."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from rich.console import Console

from stack import installing, maven, shown

PIP = """\
Looking in indexes: https://pypi.example
Ignoring colorama: markers 'sys_platform == "win32"' don't match your environment
Collecting alembic==1.20.1 (from -r requirements.lock (line 1))
  Downloading alembic-1.20.1-py3-none-any.whl (250 kB)
Collecting pyspark==4.2.0 (from -r requirements.lock (line 9))
  Downloading https://pypi.example/packages/pyspark-4.2.0.tar.gz (434.2 MB)
  Preparing metadata (setup.py): started
Requirement already satisfied: rich==15.0.0 in /here (from -r requirements.lock (line 12)) (15.0.0)
Installing collected packages: rich, pyspark, alembic
Successfully installed alembic-1.20.1 pyspark-4.2.0
"""
UV = """\
Resolved 4 packages in 12ms
Downloading pyspark (413.9MiB)
 Downloaded pyspark
Prepared 4 packages in 3.01s
Installed 4 packages in 20ms
 + alembic==1.20.1
 + pyspark==4.2.0
"""


@pytest.mark.parametrize(
    ("output", "said"),
    [
        (
            PIP,
            [
                "1 of 4 packages (20%)",
                "2 of 4 packages (50%)",
                "3 of 4 packages (70%)",
                "downloading pyspark-4.2.0.tar.gz (434.2 MB)",
                "4 of 4 packages (100%)",
                "all are here; installing them",
            ],
        ),
        (UV, ["downloading pyspark (413.9 MiB)", "all are here; installing them"]),
    ],
)
def test_of_all_that_an_installer_says_only_the_progress_is_shown(output: str, said: list[str]) -> None:
    heard: list[str] = []
    installing.follow(output.splitlines(keepends=True), 4, heard.append)
    assert heard == said


def test_a_hundred_packages_are_ten_lines() -> None:
    heard: list[str] = []
    installing.follow((f"Collecting p{number}==1\n" for number in range(100)), 100, heard.append)
    assert len(heard) == 10


def test_the_lock_file_is_counted() -> None:
    text = installing.LOCK.read_text()
    assert installing.packages() == text.count("==") - text.count("== '") - text.count('== "') > 100


def test_an_installer_that_fails_shows_why(capfd: pytest.CaptureFixture[str]) -> None:
    program = "print('Collecting one==1'); print('ERROR: no such thing'); raise SystemExit(3)"
    heard: list[str] = []
    assert installing.run([sys.executable, "-c", program], heard.append) == 3
    assert "ERROR: no such thing" in capfd.readouterr().err


def test_without_a_terminal_each_tenth_is_one_line() -> None:
    text = io.StringIO()
    with shown.shown("jars", 94, Console(file=text)) as show:
        for done in range(95):
            show(done)
            show(done)
    lines = text.getvalue().splitlines()
    assert len(lines) == 10
    assert (lines[0], lines[-1]) == ("jars: 10 of 94 (10%)", "jars: 94 of 94 (100%)")


def test_a_terminal_has_one_bar() -> None:
    text = io.StringIO()
    with shown.shown("jars", 94, Console(file=text, force_terminal=True, width=80)) as show:
        show(47)
    assert "jars" in text.getvalue() and "47/94" in text.getvalue()


def test_jars_that_have_arrived_are_those_of_maven_and_ivy(tmp_path: Path) -> None:
    folder, work = tmp_path / "folder", tmp_path / "work"
    (work / "ivy-cache" / "org" / "jars").mkdir(parents=True)
    folder.mkdir()
    assert maven.there(folder, work) == set()
    (folder / "copied-1.jar").touch()
    (work / "ivy-cache" / "org" / "jars" / "cached-2.jar").touch()
    url = "https://repo.example/org/maven-3"
    (work / "mvn.log").write_text(
        f"[INFO] Downloading from central: {url}/began-3.jar\n"
        f"[INFO] Downloaded from central: {url}/maven-3.pom (1 kB at 2 kB/s)\n"
        f"[INFO] Downloaded from central: {url}/maven-3.jar (1.2 MB at 3.4 MB/s)\n"
    )
    assert maven.there(folder, work) == {"copied-1.jar", "cached-2.jar", "maven-3.jar"}


def test_who_waits_for_maven_is_told_while_it_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maven, "LOOK_SECONDS", 0.01)
    gate, looks = tmp_path / "gate", list[int]()
    gate.touch()
    program = f"import pathlib, time\nwhile pathlib.Path({str(gate)!r}).exists(): time.sleep(0.01)"

    def seen() -> None:
        looks.append(1)
        if len(looks) == 3:
            gate.unlink()

    maven._run([sys.executable, "-c", program], tmp_path / "log", seen)
    assert len(looks) > 3
