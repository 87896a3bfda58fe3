"""The pictures of the README and of docs/page.md, made from real runs: ``make pictures``. Else they go to a temporary folder."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text

from stack import demo_data
from tests.e2e.airflow_home import Airflow
from tests.e2e.api_server import Server, log_in, open_page, serving
from tests.support import browser as browsers
from tests.support.clusters import Brokers
from tests.support.scenario import Cluster, Rec, numbered
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(browsers.MISSING is not None, reason=str(browsers.MISSING)),
]
SHOWN, BEHIND, FAILING = "orders-dr", "clicks-feed", "payments-dr"
PAYMENTS = "demo.payments"
FILES = {SHOWN: "demo.orders", "customers-archive": "demo.customers", BEHIND: "demo.clicks", FAILING: PAYMENTS}
FILE = """\
name: {name}
source: {{connection: kafka_source}}
target: {{connection: kafka_target}}
topics: {{include: [{topic}]}}
copy: {{chunk_records: 20000}}
"""
RECORDS, MORE = 200_000, 2_000
MOST_BYTES = 150_000


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(os.environ.get("PICTURES") or tmp_path_factory.mktemp("pictures"))


@pytest.fixture(scope="module")
def server(
    airflow: Airflow, source_cluster: Brokers, pictures: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    source = Cluster(source_cluster.bootstrap)
    demo_data.create_topics(source.bootstrap)
    demo_data.produce(source.bootstrap, 1, RECORDS)
    source.create(PAYMENTS, 1)
    source.produce(PAYMENTS, recent())
    for name, topic in FILES.items():
        file_of(airflow, name).write_text(FILE.format(name=name, topic=topic))
    draw(in_a_terminal(airflow, "run", SHOWN), pictures / "terminal.svg")
    for name in ("customers-archive", BEHIND, FAILING):
        in_a_terminal(airflow, "run", name)
    for topic in ("demo.clicks", PAYMENTS):
        source.produce(topic, recent())
    source.delete_before(PAYMENTS, 0, MORE + MORE // 2)  # a gap, which only a person can give up
    in_a_terminal(airflow, "run", FAILING)
    in_a_terminal(airflow, "watch", *FILES, options=["--once"])
    with serving(airflow, tmp_path_factory.mktemp("server"), {"admin": "admin"}) as started:
        yield started


def recent() -> list[Rec]:
    """Ten minutes old, so that the lag is what people are used to."""
    timestamp = int(time.time() * 1000) - 600_000
    return [replace(record, timestamp=timestamp + number) for number, record in enumerate(numbered(MORE))]


def file_of(airflow: Airflow, name: str) -> Path:
    return airflow.folder / "dags" / "replications" / f"{name}.yaml"


def in_a_terminal(airflow: Airflow, command: str, *names: str, options: Sequence[str] = ()) -> str:
    """What it writes to stdout, which is a terminal for it; its progress goes elsewhere."""
    ours, its = pty.openpty()
    files = [str(file_of(airflow, name)) for name in names]
    line = [sys.executable, "-m", "kafka_replication.cli", command, *files, *options]
    environment = airflow.environment | {"TERM": "xterm-256color", "COLUMNS": "200"}
    process = subprocess.Popen(line, env=environment, stdout=its, stderr=subprocess.DEVNULL)
    os.close(its)
    said = b""
    while True:
        try:
            said += (part := os.read(ours, 65536))
        except OSError:  # its end is closed
            part = b""
        if not part:
            break
    process.wait()
    os.close(ours)
    return f"$ kafka-replication {command} {names[0]}.yaml\n" + said.decode().replace("\r\n", "\n")


def draw(said: str, file: Path) -> None:
    """A picture that asks no other host for a font."""
    width = max(map(len, Text.from_ansi(said).plain.splitlines()))
    console = Console(record=True, width=width, file=io.StringIO())
    console.print(Text.from_ansi(said.rstrip()))
    svg = console.export_svg(title="kafka-replication", unique_id="run")
    file.write_text(re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL))


def test_the_picture_of_a_run_shows_that_it_is_verified_and_asks_nobody(server: Server, pictures: Path) -> None:
    svg = (pictures / "terminal.svg").read_text()
    assert "equal" in svg and "demo.orders" in svg
    assert re.findall(r"https?://(?!www\.w3\.org)", svg.replace("https://www.textualize.io", "")) == []


def test_the_pictures_of_the_page_show_what_runs_and_what_fails(server: Server, pictures: Path, tmp_path: Path) -> None:
    with browsers.started(tmp_path) as window:
        log_in(window, server, "admin")
        for theme in ("light", "dark"):
            window.leave()
            window.prefer(theme)
            window.run("localStorage.setItem('theme', arguments[0])", theme)
            window.open(f"{server.url}/plugin/replications")
            shown = {f"page-{theme}": ""} | ({"replication-light": f"replications/{SHOWN}"} if theme == "light" else {})
            for name, path in shown.items():
                window.size(1200, 760 if path else 430)
                open_page(window, server, path)
                window.wait_for(SHOWN)
                wait_until(lambda: window.run("return document.documentElement.dataset.theme") == theme, 30)  # noqa: B023
                window.leave()
                window.screenshot(pictures / f"{name}.png")
                assert 10_000 < (pictures / f"{name}.png").stat().st_size < MOST_BYTES
        open_page(window, server)
        for words in (FAILING, "failing", "approve-gap", "in sync", "behind"):
            window.wait_for(words)
