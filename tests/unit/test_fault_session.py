"""The fault harness: it ends, too, if one of the processes that work side by side dies; and its table."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.faults import results
from tests.faults.conduct import Verdict
from tests.faults.rows import ROWS
from tests.faults.session import side_by_side


def die_if_odd(number: int) -> int:
    if number % 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


@pytest.mark.slow
def test_a_process_that_dies_is_told() -> None:
    assert side_by_side(die_if_odd, [0, 2]) == [0, 2]
    with pytest.raises(SystemExit, match="one of the processes died"):
        side_by_side(die_if_odd, [0, 1])


def test_a_row_that_was_not_run_says_how_it_has_to_end(tmp_path: Path) -> None:
    known = results.Results(tmp_path / "results.jsonl")
    lines = results.table(known, [ROWS["zombie"], ROWS["ledger-deleted"]]).splitlines()[2:]
    assert [line.split("|")[1].strip() for line in lines] == ["zombie", "ledger-deleted"]
    assert lines[0].endswith("| must heal |") and "must name" in lines[1] and "went back" in lines[1]


def test_each_profile_has_a_table_of_its_own(tmp_path: Path) -> None:
    known = results.Results(tmp_path / "results.jsonl")
    known.add("zombie", 1000, Verdict(outcome="healed", counts={"lost": 0}))
    usual, profiles = tmp_path / "fault-results.md", tmp_path / "fault-profiles.md"
    usual.write_text("a\n<!-- faults: begin -->\nold\n<!-- faults: end -->\nz\n")
    profiles.write_text("a\n<!-- faults auto: begin -->\nold\n<!-- faults auto: end -->\nz\n")
    for profile, page, rows in (("", usual, ["zombie", "ledger-deleted"]), ("auto", profiles, ["zombie"])):
        results.write_docs(known, [ROWS["zombie"], ROWS["ledger-deleted"]], profile, tmp_path)
        lines = page.read_text().splitlines()
        assert (lines[0], lines[-1]) == ("a", "z") and "old" not in lines
        assert [line.split("|")[1].strip() for line in lines[4:-2]] == rows, "a profile has only what was run"
    with pytest.raises(SystemExit, match="no table of the profile 'batch'"):
        results.write_docs(known, [], "batch", tmp_path)


def test_rows_that_were_not_run_here_stay_in_the_table(tmp_path: Path) -> None:
    before, now = results.Results(tmp_path / "before.jsonl"), results.Results(tmp_path / "now.jsonl")
    before.add("zombie", 1000, Verdict(outcome="healed", counts={"lost": 0}))
    before.add("run-killed", 1000, Verdict(outcome="healed", counts={"lost": 0}))
    now.add("run-killed", 1007, Verdict(outcome="healed", counts={"lost": 0}))
    page = tmp_path / "fault-profiles.md"
    page.write_text("<!-- faults auto: begin -->\n<!-- faults auto: end -->\n")
    rows = [ROWS["run-killed"], ROWS["zombie"], ROWS["ledger-deleted"]]
    for known in (before, now):
        results.write_docs(known, rows, "auto", tmp_path)
    cells = [[cell.strip() for cell in line.split("|")[1:4]] for line in page.read_text().splitlines()[3:-1]]
    assert cells == [["run-killed", "1", "1007"], ["zombie", "1", "1000"]]
