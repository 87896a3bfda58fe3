"""A replication is turned around by the forms of its DAGs under a real scheduler, sent as the page sends them, and what the page shows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from kafka_replication.config.names import WATCH_DAG
from kafka_replication.overview.rows import State, rows
from kafka_replication.store import open_store
from stack.airflow_api import AirflowApi
from stack.airflow_standalone import AirflowSettings, AirflowStandalone
from tests.e2e.airflow_home import Airflow, copy
from tests.e2e.api_server import log_in_with, open_page
from tests.e2e.standalone import Form, standalone
from tests.support import browser as browsers
from tests.support.browser import Browser
from tests.support.clusters import Brokers
from tests.support.scenario import Cluster, numbered
from tests.support.turning import numbers, values
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(browsers.MISSING is not None, reason=str(browsers.MISSING)),
]
NAME = f"af-turn-{uuid4().hex[:8]}"
BACK, CUT = f"{NAME}-back", f"{NAME}-cut"
ASKED = {"dry_run": False, "reason": "a fire drill"}


@pytest.fixture
def airflow(tmp_path: Path, source_cluster: Brokers, target_cluster: Brokers) -> Iterator[AirflowStandalone]:
    common: dict[str, Any] = {"topics": {"include": [NAME]}, "retries": {"attempts": 0}}
    # Once the schedule is switched on, a run of the last time that was due begins.
    there = {**common, "name": NAME, "schedule": "@yearly"}
    cut = {**there, "name": CUT, "topics": {"include": [CUT]}}
    back = {
        **common,
        "name": BACK,
        "source": {"connection": "kafka_target"},
        "target": {"connection": "kafka_source"},
    }
    with standalone(tmp_path, source_cluster, target_cluster, [there, back, cut]) as started:
        yield started


@pytest.fixture
def browser(airflow: AirflowStandalone, tmp_path: Path) -> Iterator[Browser]:
    with browsers.started(tmp_path) as window, airflow.api() as api:
        window.size(1280, 900)
        log_in_with(window, airflow.url, api.token())
        yield window


def test_one_is_drilled_given_up_opened_again_and_led_back_and_another_cut_over_by_forms(
    airflow: AirflowStandalone, browser: Browser, source_cluster: Brokers, target_cluster: Brokers
) -> None:
    source, target = Cluster(source_cluster.bootstrap), Cluster(target_cluster.bootstrap)
    source.create(NAME)
    source.produce(NAME, numbered(50))
    assert isinstance(airflow.settings, AirflowSettings)
    home = Airflow(airflow.home.parent, {"KAFKA_REPLICATION_STORE_URL": airflow.settings.store_url})
    assert copy(home, NAME, source, target) == "done"
    source.produce(NAME, numbered(7, 50))

    def page(*words: str, of: str = NAME) -> None:
        """The page has these words, after the watch has looked."""
        assert api.wait_for_run(WATCH_DAG, api.trigger(WATCH_DAG)) == "success"
        open_page(browser, airflow, f"replications/{of}")
        for text in words:
            browser.wait_for(text)

    with airflow.api() as api:
        drill, turn = (Form(api, f"{NAME}{suffix}") for suffix in (".drill", ".turn"))

        drilled = drill.run("drill")
        assert (drilled["records"], drilled["failover"]["applied"]) == (7, False)
        page("open.", "Last failover drill:", "if the source died now: 7 records")

        dry = turn.run("turn", action="failover")
        assert (dry["state"], dry["applied"]) == ("can be sealed", False), "a dry run is what the form begins with"
        page("open.")
        done = turn.run("turn", action="failover", **ASKED)
        assert (done["state"], done["applied"], done["partitions"][0]["seal"]["by"]) == ("sealed", True, "admin")
        page("1 of 1 partitions are sealed", "sealed by failover", "a fire drill", "kafka_source → kafka_target")

        live = Form(api, NAME)  # switches its schedule on
        assert "a fire drill" in skipped(api, NAME)
        assert "a fire drill" in live.refused("report"), "who triggers it hears why"
        page("1 of 1 partitions are sealed")
        browser.wait_for("sealed", "#live")
        assert overview(airflow.settings.store_url, NAME) == (State.SEALED, []), "no alert"
        assert values(target, NAME) == numbers(range(50))

        assert turn.run("turn", action="failover --undo", **ASKED)["state"] == "opened again"
        assert live.run("report")["ranges"][0]["copied"] == 7
        page("open.", "in sync")

        assert turn.run("turn", action="failover", **ASKED)["state"] == "sealed"
        target.produce(NAME, numbered(5, 200))
        led_back = turn.run("turn", action="failback", back=BACK, quiet=0.5, **ASKED)
        assert led_back["applied"] and {step["state"] for step in led_back["steps"]} == {"done"}
        assert values(source, NAME) == numbers(range(57), range(200, 205))
        source.produce(NAME, numbered(3, 300))
        assert live.run("report")["outcome"] == "done"
        page("open.", "It was opened behind the other direction's seal")

        source.create(CUT)
        source.produce(CUT, numbered(9))
        cut = Form(api, f"{CUT}.turn")
        dry = cut.run("turn", action="cutover", quiet=0.5, audit=-1)
        assert not dry["applied"] and {step["state"] for step in dry["steps"]} == {"to do"}
        assert target.partitions(CUT) == 0, "nothing was changed"
        moved = cut.run("turn", action="cutover", quiet=0.5, audit=-1, **ASKED)
        assert moved["applied"] and {step["state"] for step in moved["steps"]} == {"done"}
        assert [step["step"] for step in moved["steps"]] == [step["step"] for step in dry["steps"]]
        Form(api, CUT)
        assert "a fire drill" in skipped(api, CUT)
        page("1 of 1 partitions are sealed", "sealed by cutover", "nobody has written to the source since", of=CUT)
        assert overview(airflow.settings.store_url, CUT) == (State.SEALED, []), "no alert"
        browser.click("section[aria-labelledby=certificates] li > a")
        browser.wait_for(f"Certificate of replication {CUT}")
        browser.wait_for(moved["cut"])
    assert values(target, NAME) == numbers(range(57), range(200, 205), range(300, 303))
    assert values(target, CUT) == values(source, CUT) == numbers(range(9))


def skipped(api: AirflowApi, name: str) -> str:
    """The log of the only scheduled run, which ends as skipped."""
    wait_until(lambda: bool(scheduled(api, name)))
    [run] = scheduled(api, name)
    assert api.wait_for_run(name, run, 600) == "success"
    states = {task["task_id"]: task["state"] for task in api.task_instances(name, run)}
    assert states == {"plan": "success", "replicate": "success", "report": "skipped"}
    return api.logs(name, run, "report")


def scheduled(api: AirflowApi, name: str) -> list[str]:
    found = api.get(f"dags/{name}/dagRuns", limit=100)["dag_runs"]
    return [each["dag_run_id"] for each in found if each["run_type"] == "scheduled"]


def overview(store_url: str, name: str) -> tuple[State, list[str]]:
    """The state of the replication, and its open alerts."""
    with closing(open_store(store_url)) as store:
        [row] = rows(store, datetime.now(UTC), [name])
    return row.state, [str(cause.key) for cause in row.causes]
