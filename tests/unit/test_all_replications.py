"""One look over all replications: the table, the document and the exit code, from a folder and a store."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kafka_replication.alerting.open_causes import Cause, CauseKey, Kind, Observation, decide
from kafka_replication.cli import app
from kafka_replication.store import open_store
from kafka_replication.watermarks.sight import Facts, Lag, Work
from tests.support.published_schema import check_output

FILE = "name: {name}\nsource: {{connection: a}}\ntarget: {{connection: b}}\ntopics: {{include: [orders]}}\n"
FACTS = Facts(source="a", target="b")
IN_SYNC = Lag(0, 0.0)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with an empty store, and replication files where `status` looks for them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KAFKA_REPLICATION_STORE_URL", f"sqlite:///{tmp_path}/store.db")
    files = tmp_path / "dags" / "replications"
    files.mkdir(parents=True)
    write(files, "orders-dr", "payments-dr")
    return files


def write(folder: Path, *names: str) -> None:
    for name in names:
        (folder / f"{name}.yaml").write_text(FILE.format(name=name))


def seen(folder: Path, *names: str, lag: Lag = IN_SYNC) -> None:
    """A watch has looked at these replications just now."""
    with closing(open_store(f"sqlite:///{folder.parents[1]}/store.db")) as store:
        for name in names:
            store.record_standing(name, FACTS, lag, [])


def called(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, list(arguments))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    check_output(arguments, done.stdout)
    return done.exit_code, done.stdout, done.stderr


def states(arguments: Sequence[str]) -> tuple[int, list[tuple[str, str]]]:
    code, out, _ = called(*arguments, "--json")
    return code, [(row["replication"], row["state"]) for row in json.loads(out)["replications"]]


OVERVIEW = ("overview",)


def test_what_needs_a_person_comes_first_and_is_the_exit_code(folder: Path) -> None:
    assert states(OVERVIEW) == (1, [("orders-dr", "unseen"), ("payments-dr", "unseen")])
    seen(folder, "orders-dr")
    assert states(OVERVIEW) == (1, [("payments-dr", "unseen"), ("orders-dr", "in sync")])
    seen(folder, "payments-dr", lag=Lag(5, 60.0))
    assert states(OVERVIEW) == (0, [("payments-dr", "behind"), ("orders-dr", "in sync")])


def test_status_without_a_file_is_the_same_table(folder: Path) -> None:
    seen(folder, "orders-dr", "payments-dr", lag=Lag(1_234, 7_200.0))
    code, out, err = called("status")
    assert (code, len(out.splitlines())) == (0, 3)
    assert out.splitlines()[1].split()[:4] == ["orders-dr", "behind", "1,234", "2.0"]
    assert "store: sqlite:" in err
    shown = [called(command, str(folder))[:2] for command in ("status", "overview")]
    # An age may grow from one to the other.
    same = {(code, re.sub(r" *\d+ s ago *", " now ", out)) for code, out in shown}
    assert len(same) == 1


def test_without_a_folder_it_is_all_that_the_store_knows(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen(folder, "orders-dr", "gone-dr")
    assert states(OVERVIEW) == (1, [("payments-dr", "unseen"), ("orders-dr", "in sync")])
    monkeypatch.chdir(folder)
    assert states(OVERVIEW) == (0, [("gone-dr", "in sync"), ("orders-dr", "in sync")])


def test_an_alert_is_shown_with_its_remedy(folder: Path) -> None:
    seen(folder, "orders-dr", "payments-dr")
    now = datetime.now(UTC)
    cause = Cause(key=CauseKey(Kind.GAP, "orders"), what="offsets 3 to 9 are lost", remedy="approve the gap")
    work = Work(run_id="run-7", records=3, bytes=2_000_000, seconds=2.0, at=now)
    with closing(open_store(f"sqlite:///{folder.parents[1]}/store.db")) as store:
        store.record_work("orders-dr", FACTS, work)
        store.update_causes("orders-dr", lambda open_, now: decide(open_, Observation(causes=(cause,)), now))
    code, out, _ = called("status")
    assert code == 1
    assert "FAILING orders-dr: offsets 3 to 9 are lost\n  remedy: approve the gap" in out
    assert "3 records, 2.0 MB, 2 s" in out
    row = json.loads(called("overview", "--json")[1])["replications"][0]
    assert (row["run_id"], row["bytes"], row["alerts"], row["what"]) == ("run-7", 2_000_000, 1, cause.what)


def test_a_file_with_a_mistake_is_named(folder: Path) -> None:
    seen(folder, "orders-dr", "payments-dr")
    (folder / "bad.yaml").write_text("name: bad\n")
    code, out, _ = called("overview")
    assert code == 2 and "BROKEN " in out and "bad.yaml" in out
    assert len(json.loads(called("overview", "--json")[1])["broken"]) == 1


def test_a_folder_that_is_not_there_is_bad_input(folder: Path) -> None:
    code, _, err = called("overview", str(folder / "none"))
    assert code == 2 and "is not a folder" in err
