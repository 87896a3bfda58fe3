"""The watermark store is a projection of the ledger: lost, old or wrong, it is restored from there, and never ahead of it."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest
import yaml

from kafka_replication.store import open_store
from tests.support import watermarks
from tests.support.actions import replace_store, table
from tests.support.command_line import cli, command, ended
from tests.support.jobs import copy_once
from tests.support.leases import holder_of
from tests.support.scenario import Scenario, numbered


def copied(scene: Scenario) -> None:
    """Two partitions, each with a watermark of its own."""
    scene.source.create(scene.topic, 2)
    scene.source.produce(scene.topic, numbered(60))
    scene.source.produce(scene.topic, numbered(25), 1)
    assert scene.run().outcome == "done"


def more(scene: Scenario) -> None:
    scene.source.produce(scene.topic, numbered(40, 60))
    assert scene.run().outcome == "done"


def backup_of(scene: Scenario) -> str:
    folder = scene.folder / "backup"
    folder.mkdir()
    scene.store.close()
    for file in scene.folder.glob("store.db*"):
        shutil.copy(file, folder)
    scene.store = open_store(scene.store_url)
    return str(folder)


def rebuild(scene: Scenario, *options: str) -> tuple[int, dict[str, Any], str]:
    text = yaml.safe_dump(scene.document())
    code, out, err = ended(cli(scene, text, scene.source.bootstrap, "ledger", "--rebuild-store", "--json", *options))
    return code, json.loads(out), err


def test_an_emptied_store_is_restored_exactly(scene: Scenario) -> None:
    copied(scene)
    more(scene)
    before = table(scene)
    assert sorted(mark[0] for mark in before.values()) == [25, 100]
    replace_store(scene)
    assert table(scene) == {}
    code, document, _ = rebuild(scene)
    assert code == 0
    assert table(scene) == before
    assert [(each["partition"], each["before"], each["after"]) for each in document["partitions"]] == [
        (0, None, 100),
        (1, None, 25),
    ]
    code, document, _ = rebuild(scene)  # once more changes nothing
    assert [(each["before"], each["after"], each["version"]) for each in document["partitions"]] == [
        (100, 100, 1),
        (25, 25, 1),
    ]
    assert holder_of(scene.store, scene.name) is None
    scene.idle_run()
    assert table(scene) == before


def test_another_store_than_that_of_the_runs_is_told_and_not_made(scene: Scenario) -> None:
    copied(scene)
    code, out, _ = command(scene, "status")
    assert (code, out.count("in sync"), "WARNING" in out) == (0, 2, False), out
    other = f"sqlite:///{scene.folder}/other/store.db"
    code, out, err = command(scene, "status", KAFKA_REPLICATION_STORE_URL=other)
    assert err.splitlines()[0] == f"store: {other} (not there: no run is known, and none is made)"
    assert (out.count("not in this store"), "in sync" in out) == (2, False), out
    assert "WARNING 2 of 2 partitions are verified further in the ledger than this store knows" in out
    _, _, err = command(scene, "plan", KAFKA_REPLICATION_STORE_URL=other)
    assert err.count("2 of 2 partitions are verified further in the ledger than this store knows") == 1
    assert not (scene.folder / "other").exists()


def test_an_old_backup_is_brought_up_to_date_by_the_command(scene: Scenario) -> None:
    copied(scene)
    backup = backup_of(scene)
    more(scene)
    before = table(scene)
    replace_store(scene, backup)
    assert (scene.watermark(0), scene.watermark(1)) == (60, 25)
    code, document, _ = rebuild(scene)
    assert code == 0
    assert [(each["before"], each["after"], each["version"]) for each in document["partitions"]] == [
        (60, 100, 2),
        (25, 25, 1),
    ]
    assert table(scene) == before


def test_an_old_backup_and_an_emptied_store_heal_by_running(scene: Scenario) -> None:
    copied(scene)
    backup = backup_of(scene)
    more(scene)
    before = table(scene)
    for state in (backup, None):
        replace_store(scene, state)
        assert table(scene) != before
        scene.idle_run()
        assert table(scene) == before
    scene.assert_copied(0, 1)


def test_what_is_copied_and_not_verified_is_not_restored(scene: Scenario) -> None:
    copied(scene)
    scene.source.produce(scene.topic, numbered(40, 60))
    assert copy_once(scene.copy_job(run_id="copies-only")).copied == 40
    replace_store(scene)
    assert rebuild(scene)[0] == 0
    assert (scene.watermark(0), scene.watermark(1)) == (60, 25)


def test_a_store_ahead_of_the_ledger_is_lowered_only_when_asked(scene: Scenario) -> None:
    copied(scene)
    right = table(scene)
    watermarks.somebody_moves(scene.store, scene.key(), 70)
    edited = table(scene)
    code, document, err = rebuild(scene)
    assert code == 1
    assert f"{scene.key()} at 70, where the ledger verified up to 60" in document["error"]
    assert "--force" in err
    assert table(scene) == edited
    assert scene.run().outcome == "failed"
    code, document, _ = rebuild(scene, "--force")
    assert code == 0
    assert table(scene) == right
    assert document["partitions"][0] | {"topic": ""} == {
        "topic": "",
        "partition": 0,
        "target_topic": scene.topic,
        "before": 70,
        "after": 60,
        "generation": 1,
        "version": 3,
    }
    more(scene)
    scene.assert_copied(0, 1)


def test_what_the_ledger_does_not_know_is_refused_whatever_is_asked(scene: Scenario) -> None:
    copied(scene)
    watermarks.advance(scene.store, scene.key(7), 1, None, run_id="somebody")
    edited = table(scene)
    code, document, _ = rebuild(scene, "--force")
    assert code == 1
    assert f"the store knows {scene.key(7)}, the ledger does not" in document["error"]
    assert table(scene) == edited


def test_a_store_that_knows_less_is_said_once_each_time_it_happens(
    scene: Scenario, caplog: pytest.LogCaptureFixture
) -> None:
    """A process that watches for months must not keep quiet about the second time."""

    def warnings_of_two_looks() -> int:
        caplog.clear()
        for _ in range(2):
            run = scene.bare_run()
            run.watermarks(run.view())
        return len([line for line in caplog.messages if "ledger" in line and "store" in line])

    copied(scene)
    backup = backup_of(scene)
    assert warnings_of_two_looks() == 0
    replace_store(scene)
    assert warnings_of_two_looks() == 1
    replace_store(scene, backup)
    assert warnings_of_two_looks() == 0
    replace_store(scene)
    assert warnings_of_two_looks() == 1


def test_an_option_that_would_be_ignored_is_refused(scene: Scenario) -> None:
    code, out, err = command(scene, "ledger", "--force")
    assert (code, out) == (2, "") and "--force" in err, err
