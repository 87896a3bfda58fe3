"""The page in Airflow's real API server: who may see what, what it shows of a real store, and what its actions start."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from kafka_replication.runtime import failpoints
from kafka_replication.store import open_store
from kafka_replication.watermarks.sight import CertificateRow
from kafka_replication.web import PREFIX
from tests.e2e.airflow_home import SECRET, copy
from tests.e2e.api_server import Server, open_page
from tests.e2e.auth_of_one_dag import ONLY
from tests.e2e.page_server import (
    ONE,
    PAGES,
    PARTITIONS,
    RECORDS,
    REMEDY,
    TABS,
    TWO,
    clicks_of_docs,
    needs_a_browser,
    runs_of,
    scraped,
)
from tests.support.browser import Browser
from tests.support.scenario import Cluster, numbered
from tests.support.waiting import wait_until


@pytest.mark.parametrize("path", [*PAGES, *TABS, "metrics"])
def test_nobody_sees_anything_without_a_login(server: Server, path: str) -> None:
    answer = server.page(path.replace("NAME", ONE), None)
    assert answer.status_code == 401
    assert ONE not in answer.text
    assert "Log in to Airflow" in answer.text


@pytest.mark.parametrize("path", [*PAGES[1:], *TABS])
def test_nobody_sees_a_replication_whose_dag_is_hidden(server: Server, path: str) -> None:
    assert server.page(path.replace("NAME", TWO), f"{ONLY}{ONE}").status_code == 403
    assert server.page(path.replace("NAME", ONE), f"{ONLY}{ONE}").status_code in (200, 404)  # a run that is not known


def test_rows_of_hidden_dags_are_not_there(server: Server) -> None:
    everything, some = server.page(""), server.page("", f"{ONLY}{ONE}")
    assert everything.status_code == some.status_code == 200
    assert ONE in everything.text and TWO in everything.text
    assert ONE in some.text
    assert TWO not in some.text
    found = server.page(f"?q={TWO}", f"{ONLY}{ONE}").text
    assert TWO not in found.replace(f'value="{TWO}"', "").replace(f"q={TWO}", "")


def test_prometheus_scrapes_with_a_token_what_its_user_may_see(server: Server) -> None:
    status, everything = scraped(server, "admin")
    assert status == 200
    assert everything[f"{ONE} records_total"] == PARTITIONS * RECORDS, "of the run that the command made"
    assert everything[f"{ONE} lag_records"] == 0
    assert everything[f"{TWO} failed_records"] == 2
    status, some = scraped(server, f"{ONLY}{ONE}", "metrics?by_topic=true")
    assert status == 200
    assert {name.split()[0] for name in some} == {ONE}
    assert scraped(server, f"{ONLY}nothing") == (403, {})


def test_what_needs_a_person_comes_first_with_its_remedy(server: Server) -> None:
    text = server.page("").text
    assert text.index(f">{TWO}<") < text.index(f">{ONE}<")
    assert REMEDY in text
    assert "&lt;b&gt;offsets" in text  # what a cluster said is never markup


def test_the_page_shows_what_was_copied_and_says_when_that_was_measured(server: Server) -> None:
    text = " ".join(re.sub(r"<[^>]+>", " ", server.page(f"replications/{ONE}").text).split())
    for words in ("kafka_source → kafka_target", "in sync", f"{PARTITIONS * RECORDS} records", "measured", "by digest"):
        assert words in text, words
    [run_id] = set(re.findall(r"cli-[\w-]+", server.page(f"replications/{ONE}/runs").text)) or {""}
    assert f"[0, {RECORDS})" in server.page(f"replications/{ONE}/run?run_id={quote(run_id)}").text
    place = server.page(f"replications/{ONE}/partition?topic={ONE}&partition=1&target={ONE}").text
    assert '<rect class="verified"' in place
    assert run_id in place


def test_the_files_of_a_certificate_are_as_they_were_signed(server: Server) -> None:
    files = {"json": b"{}\n", "html": b"<style>p { color: red }</style><p>\xc3\xa4<!-- key:  -->\n"}
    time, said = datetime.now(UTC), "cutover"
    made = CertificateRow(name=f"{ONE}-1", time=time, about=said, verified=True, verdict=said, signed_by=None)
    with closing(open_store(server.airflow.environment["KAFKA_REPLICATION_STORE_URL"])) as store:
        store.keep_certificate(ONE, made, *files.values())
    page = server.page(f"replications/{ONE}").text
    links = re.findall(rf'href="[^"]*/(replications/{ONE}/certificates/[^"]*)"', page)
    assert len(links) == 2
    for link in links:
        answer = server.page(link)
        assert answer.content == files[link.rpartition(".")[2]]
        assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert server.page(f"replications/{ONE}/certificates/{ONE}-1.exe").status_code == 404


def test_the_page_of_a_run_has_its_steps_as_airflow_knows_them(server: Server) -> None:
    with server.as_user("admin") as client:
        asked = {"dag_run_id": (run_id := "asked-once"), "logical_date": None, "conf": {"dry_run": True}}
        client.post(f"/api/v2/dags/{TWO}/dagRuns", json=asked)
        path = f"/api/v2/dags/{TWO}/dagRuns/{run_id}"
        for task, state in (("plan", "success"), ("replicate", "failed")):
            assert client.patch(f"{path}/taskInstances/{task}", json={"new_state": state}).is_success
        client.patch(path, json={"state": "failed"})
    name = f"airflow-{TWO}-{run_id}"
    with closing(open_store(server.airflow.environment["KAFKA_REPLICATION_STORE_URL"])) as store:
        store.start_run(name, TWO, "live", "{}")
        store.finish_run(name, "done")
    text = server.page(f"replications/{TWO}/run?run_id={quote(name)}", "viewer").text
    steps = dict(re.findall(r"/tasks/(\w+)[^>]*>\w+</a></th><td>(\w+)</td>", text))
    assert (steps["plan"], steps["replicate"]) == ("success", "failed")
    assert "report" in steps
    [command] = set(re.findall(r"cli-[\w-]+", server.page(f"replications/{ONE}/runs").text))
    assert "Steps" not in server.page(f"replications/{ONE}/run?run_id={quote(command)}").text


def test_the_tabs_of_a_dag_and_of_its_run_lead_to_the_replication(server: Server) -> None:
    for dag_id in (ONE, f"{ONE}.backfill"):
        assert server.page(f"of/{dag_id}").url.path.endswith(f"/replications/{ONE}")
    assert server.page(f"of/{ONE}/manual__1").url.path.endswith(f"/replications/{ONE}")
    assert server.page("of/replications.watch").status_code == 404


def test_only_those_who_may_trigger_a_dag_are_offered_its_actions(server: Server) -> None:
    assert "data-dag" in server.page(f"replications/{TWO}").text
    assert "data-dag" not in server.page(f"replications/{TWO}", "viewer").text


def test_no_page_names_another_host_or_a_secret_or_lets_a_script_of_one_in(server: Server) -> None:
    for path in PAGES:
        answer = server.page(path.replace("NAME", ONE))
        text = answer.text
        assert not re.findall(r"""(?:src|href|action|hx-\w+)=["'](?:https?:)?//""", text), path
        assert SECRET not in text
        assert "default-src 'self'" in answer.headers["content-security-policy"]
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["cache-control"] == "no-store"
        assert not re.findall(r"<script(?![^>]*src=)|\son\w+=|style=", text), path


def test_no_page_changes_anything(server: Server) -> None:
    with server.as_user("admin") as client:
        for path in PAGES:
            assert client.post(f"{PREFIX}/{path}").status_code == 405


def test_odd_requests_are_refused_by_name(server: Server) -> None:
    for path in (
        "?page=0",
        "?page=x",
        f"?q={'x' * 201}",
        f"replications/{ONE}/partition?topic=t&partition=-1&target=t",
    ):
        assert server.page(path).status_code == 422
    assert server.page("?page=999999").status_code == 200
    assert server.page(f"replications/{ONE}/run?run_id=none").status_code == 404
    assert server.page("nowhere").status_code == 404


@needs_a_browser
def test_a_browser_shows_the_page_within_airflow_and_asks_no_other_host(browser: Browser, server: Server) -> None:
    browser.open(server.url)
    browser.click('a[href$="/plugin/replications"]')  # the first of the clicks that docs/page.md counts
    browser.enter("iframe")
    browser.wait_for(TWO)
    browser.requested()
    browser.complaints()
    browser.click(f'a[href$="{TWO}"]')
    browser.wait_for("Over time")
    browser.leave()
    browser.open(f"{server.url}{PREFIX}/replications/{TWO}")
    browser.wait_for("Over time")
    hosts = {urlsplit(url).netloc for url in browser.requested() if url.startswith("http")}
    assert hosts == {urlsplit(server.url).netloc}
    assert [line for line in browser.complaints() if PREFIX in line] == []


@needs_a_browser
def test_numbers_that_are_no_longer_renewed_say_so_and_why(browser: Browser, server: Server) -> None:
    browser.leave()
    browser.open(f"{server.url}{PREFIX}/replications/{ONE}")
    browser.wait_for("in sync", "#live")
    browser.do("DELETE", "cookie/_token")
    browser.wait_for("your login is over", "#stale")
    browser.wait_for("in sync", "#live")  # what was there stays
    browser.do("POST", "cookie", {"cookie": {"name": "_token", "value": server.token("admin"), "path": "/"}})
    wait_until(lambda: browser.text("#stale") == "", 60)


@needs_a_browser
def test_a_plot_says_the_value_under_the_pointer(browser: Browser, server: Server) -> None:
    plot = ".plots figure:nth-of-type(3)"  # records copied
    browser.leave()
    browser.open(f"{server.url}{PREFIX}/replications/{ONE}")
    wait_until(lambda: len(browser.all(".plots canvas")) == 4, 60)
    share = browser.run(
        "const {at, values, along} = JSON.parse(arguments[0].dataset.plot); const [since, until] = [along[0][0],"
        " along.at(-1)[0]]; return (at[values.findLastIndex(Boolean)] - since) / (until - since)",
        browser.one(f"{plot} .plot"),
    )
    browser.drag(f"{plot} .u-over", 0.3, share)
    browser.wait_for(f"{PARTITIONS * RECORDS}", f"{plot} .u-legend")


@needs_a_browser
@pytest.mark.parametrize(
    ("action", "suffix", "conf"),
    [
        ("run", "", {}),
        ("dry-run", "", {"dry_run": True}),
        pytest.param("backfill", ".backfill", {"topics": [TWO], "from": "5", "dry_run": True}, marks=pytest.mark.slow),
        pytest.param("audit", ".audit", {"topic": TWO, "partition": 1}, marks=pytest.mark.slow),
        (
            "approve-gap",
            ".repair",
            {"action": "approve-gap", "topic": TWO, "partition": 1, "from": 5, "until": 7, "reason": "an outage"},
        ),
        pytest.param("reset", ".repair", {"action": "reset", "topic": TWO, "confirm": TWO}, marks=pytest.mark.slow),
    ],
)
def test_an_action_becomes_a_dag_run_of_this_person(
    browser: Browser, server: Server, action: str, suffix: str, conf: dict[str, Any]
) -> None:
    dag_id = f"{TWO}{suffix}"
    before = len(runs_of(server, dag_id))
    open_page(browser, server, f"replications/{TWO}")
    form = f"#action-{action} form"
    browser.one(f"{form} button")
    if browser.all(f"#action-{action} summary"):  # it has fields to fill in
        browser.click(f"#action-{action} summary")
    for name, value in conf.items():
        if name not in ("dry_run", "action"):
            browser.type(f'{form} [name="{name}"]', ",".join(value) if isinstance(value, list) else str(value))
    browser.click(f"{form} button")
    wait_until(lambda: len(runs_of(server, dag_id)) == before + 1, 60)
    [newest] = sorted(runs_of(server, dag_id), key=lambda run: str(run["run_after"]))[-1:]
    assert newest["conf"] == conf
    assert newest["triggering_user_name"] == "admin"
    browser.leave()
    wait_until(lambda: f"/dags/{dag_id}/runs/" in browser.url, 60)
    with server.as_user("admin") as client:
        logged = client.get("/api/v2/eventLogs", params={"dag_id": dag_id, "event": "trigger_dag_run"}).json()
        assert [each["owner"] for each in logged["event_logs"]] == ["admin"] * logged["total_entries"] != []
        client.patch(f"/api/v2/dags/{dag_id}/dagRuns/{newest['dag_run_id']}", json={"state": "failed"})


@needs_a_browser
def test_a_failed_record_is_retried_by_one_click_and_a_hand_dag_that_is_off_is_switched_on(
    browser: Browser, server: Server
) -> None:
    open_page(browser, server, f"replications/{TWO}")
    browser.click("#failed ~ div form.inline button")
    wait_until(lambda: bool(runs_of(server, f"{TWO}.failed")), 60)
    [run] = runs_of(server, f"{TWO}.failed")
    assert run["conf"] == {"action": "retry", "topic": TWO, "partition": 1, "from": 7, "until": 8}
    with server.as_user("admin") as client:
        assert client.get(f"/api/v2/dags/{TWO}.failed").json()["is_paused"] is False
        assert client.get(f"/api/v2/dags/{TWO}").json()["is_paused"] is True  # its schedule is its owner's


@needs_a_browser
def test_what_airflow_refuses_is_said_beside_the_button(browser: Browser, server: Server) -> None:
    open_page(browser, server, f"replications/{TWO}")
    browser.click("#action-audit summary")
    browser.type('#action-audit [name="partition"]', "99999999999")
    browser.click("#action-audit button")
    browser.wait_for("Airflow answers 400", "#action-audit output")


@needs_a_browser
def test_a_range_that_is_dragged_over_on_the_map_goes_into_the_form(browser: Browser, server: Server) -> None:
    open_page(browser, server, f"replications/{ONE}/partition?topic={ONE}&partition=0&target={ONE}")
    browser.drag("svg.map", 0.3, 0.8)
    from_, until = (
        int(browser.run(f"return document.querySelector('[name={name}]').value")) for name in ("from", "until")
    )
    assert 0 < from_ < until < RECORDS


@needs_a_browser
def test_a_run_at_work_shows_its_progress_as_it_goes(
    browser: Browser,
    server: Server,
    sides: tuple[Cluster, Cluster],
    gate: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for partition in range(PARTITIONS):
        sides[0].produce(ONE, numbered(RECORDS), partition)
    monkeypatch.setenv(failpoints.VARIABLE, f"P1:3={gate}")
    failpoints.forget()
    open_page(browser, server, f"replications/{ONE}")
    with ThreadPoolExecutor(1) as pool:
        copying = pool.submit(copy, server.airflow, ONE, *sides)
        try:
            browser.wait_for("ranges done", "#live")
            browser.wait_for("running", "#live")
        finally:
            gate.unlink()
        assert copying.result() == "done"
    wait_until(lambda: not browser.all("#live progress"), 60)


# All that there is where pictures are asked for.
WIDTHS = (
    {"light": (1280, 400), "dark": (1280, 400)}
    if os.environ.get("PAGE_PICTURES")
    else {"light": (1280,), "dark": (400,)}
)


@pytest.mark.slow
@needs_a_browser
def test_the_page_follows_airflows_theme_and_fits_narrowly(browser: Browser, server: Server, tmp_path: Path) -> None:
    pictures = Path(os.environ.get("PAGE_PICTURES") or tmp_path)
    for theme in ("light", "dark"):
        browser.leave()
        browser.prefer(theme)
        browser.run("localStorage.setItem('theme', arguments[0])", theme)
        browser.open(f"{server.url}/plugin/replications")
        for width in WIDTHS[theme]:
            browser.size(width, 900)
            partition = f"replications/{ONE}/partition?topic={ONE}&partition=0&target={ONE}"
            for name, path in (("front", ""), ("replication", f"replications/{ONE}"), ("partition", partition)):
                open_page(browser, server, path)
                browser.wait_for(ONE)
                wait_until(lambda: browser.run("return document.documentElement.dataset.theme") == theme, 30)  # noqa: B023
                beyond = browser.run(
                    "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
                )
                assert beyond <= 0, f"{name} is wider than its window of {width}"
                browser.leave()
                browser.screenshot(pictures / f"{name}-{theme}-{width}.png")
    browser.size(1280, 900)


@needs_a_browser
def test_everything_can_be_reached_with_the_keyboard(browser: Browser, server: Server) -> None:
    browser.leave()
    browser.open(f"{server.url}{PREFIX}/replications/{TWO}")
    browser.wait_for("Over time")
    reached = set[str]()
    wanted = {"Skip to content", "Run now", "Dry run", "Backfill", "Retry", "Replications"}
    for _ in range(80):
        if wanted <= reached:
            break
        browser.press("\ue004")  # Tab
        reached.add(str(browser.run("return document.activeElement.innerText || document.activeElement.name")).strip())
    assert wanted <= reached, wanted - reached


@pytest.mark.slow  # each click has a case of its own
@needs_a_browser
def test_everything_takes_as_many_clicks_as_the_docs_say(browser: Browser, server: Server) -> None:
    places = {
        "Replications": 'a[href$="/plugin/replications"]',
        "its name": f'a[href$="/{TWO}"]',
        "Dry run": "#action-dry-run form button",
        "Retry": "#failed ~ div form.inline button",
    }
    retried = len(runs_of(server, f"{TWO}.failed"))
    arrived: dict[str, Callable[[], object]] = {
        "the lag": lambda: browser.wait_for("measured"),
        "when it was last verified": lambda: browser.wait_for("never", 'td[data-label="Verified"]'),
        "why it failed, with the remedy": lambda: browser.wait_for(REMEDY),
        "a dry run with its plan": lambda: wait_until(lambda: browser.url.endswith("/tasks/plan"), 60),
        "the retry of a failed record": lambda: wait_until(
            lambda: len(runs_of(server, f"{TWO}.failed")) == retried + 1, 60
        ),
    }
    documented = clicks_of_docs()
    assert {what for what, _, _ in documented} == set(arrived)
    for what, number, on in documented:
        assert number == len(on)
        browser.leave()
        browser.open(server.url)
        for place in on:
            browser.click(places[place])
            if place == "Replications":
                browser.enter("iframe")
                browser.wait_for(TWO)
        if what == "a dry run with its plan":
            browser.leave()
        arrived[what]()
