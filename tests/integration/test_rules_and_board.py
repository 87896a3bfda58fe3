"""The rules for Prometheus and Grafana's board: Prometheus' own tool reads them, and they name only metrics that exist."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from copy import deepcopy
from itertools import combinations
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
from prometheus_client.parser import text_string_to_metric_families
from pydantic import ConfigDict, TypeAdapter, ValidationError

from kafka_replication.overview.metrics import Collector, exposition
from kafka_replication.store import open_store
from kafka_replication.watermarks.sight import Lag
from tests.integration.test_exporter import GAP, REPOSITORY, look, run, url

__all__ = ["url"]
DEPLOY, WIDTH = REPOSITORY / "deploy", 24  # the columns of a board
BOARD: Any = json.loads((DEPLOY / "grafana" / "kafka-replication.json").read_text())


def rules_of_docs() -> list[Any]:
    """The rules that docs/monitoring.md shows for a file of one's own."""
    [code] = re.findall(
        r"```\n(# what no rule asks yet.*?)```", (REPOSITORY / "docs" / "monitoring.md").read_text(), re.DOTALL
    )
    return list(yaml.safe_load(code))


def expressions() -> list[str]:
    """Every expression of the board, as Grafana sends it."""
    return [target["expr"].replace("$replication", ".*") for panel in BOARD["panels"] for target in panel["targets"]]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool here: apt-get install prometheus")
def test_prometheus_reads_every_rule_and_every_expression_of_the_board(tmp_path: Path) -> None:
    shown = tmp_path / "shown.yml"
    board = [{"record": f"board:{number}", "expr": text} for number, text in enumerate(expressions())]
    groups = [{"name": "docs", "rules": rules_of_docs()}, {"name": "board", "rules": board}]
    shown.write_text(json.dumps({"groups": groups}))
    rules = DEPLOY / "prometheus" / "kafka-replication.rules.yml"
    said = subprocess.run(
        ["promtool", "check", "rules", str(shown), str(rules)], capture_output=True, text=True, check=False
    )
    assert said.returncode == 0, said.stdout + said.stderr
    assert len(rules_of_docs()) >= 2 and len(board) >= len(BOARD["panels"])


def test_rules_and_board_name_only_metrics_that_the_exporter_has(url: str) -> None:
    look(url, Lag(1, 1.0), GAP)
    run(url, "run-1", 7)
    text = exposition(Collector(lambda: open_store(url), by_topic=True)).decode()
    families = list(text_string_to_metric_families(text))
    exist = {family.name for family in families} | {sample.name for family in families for sample in family.samples}
    named = json.dumps([BOARD, rules_of_docs()]) + (DEPLOY / "prometheus" / "kafka-replication.rules.yml").read_text()
    # not the labels of a series, nor names of files
    assert set(re.findall(r"\bkafka_replication_\w+", named)) <= exist


def test_the_board_has_the_fields_that_grafana_needs_and_no_panel_covers_another() -> None:
    assert BOARD["title"] and BOARD["uid"] and BOARD["schemaVersion"] >= 36
    variables = {variable["name"] for variable in BOARD["templating"]["list"]}
    assert set(re.findall(r"\$\{?(\w+)", json.dumps(BOARD["panels"]))) - {"__rate_interval", "__interval"} <= variables
    places = []
    for panel in BOARD["panels"]:
        assert panel["type"] in ("stat", "timeseries", "table", "row") and panel["title"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"]) > 0
        at = panel["gridPos"]
        assert at["x"] >= 0 and at["w"] > 0 and at["x"] + at["w"] <= WIDTH and at["h"] > 0
        places.append((at["x"], at["y"], at["x"] + at["w"], at["y"] + at["h"]))
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])
    for one, other in combinations(places, 2):
        assert one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]


def refused_by_grafana(board: Any) -> list[str]:
    """The fields of a board that Grafana's own types do not know, or whose values they do not allow."""
    register_default_plugins()  # the options of each kind of panel, and Prometheus' queries
    read = Dashboard.from_json(deepcopy(board))
    written = json.loads(JSONEncoder().encode(read))
    return [*_lost(board, written, "board"), *_not_allowed(read, "board")]


def _lost(given: Any, kept: Any, place: str) -> Iterator[str]:
    if isinstance(given, dict) and isinstance(kept, dict):
        for key, value in given.items():
            if key in kept:
                yield from _lost(value, kept[key], f"{place}.{key}")
            else:
                yield f"{place}.{key}"
    elif isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        for number, (one, other) in enumerate(zip(given, kept, strict=True)):
            yield from _lost(one, other, f"{place}[{number}]")
    elif given != kept:
        yield place


def _not_allowed(read: Any, place: str) -> Iterator[str]:
    if isinstance(read, list):
        for number, one in enumerate(read):
            yield from _not_allowed(one, f"{place}[{number}]")
    elif hasattr(read, "to_json"):
        for name, hint in get_type_hints(type(read)).items():
            value = getattr(read, name)
            if any(hasattr(one, "to_json") for one in (value if isinstance(value, list) else [value])):
                yield from _not_allowed(value, f"{place}.{name}")
                continue
            allowed = TypeAdapter[Any](hint, config=ConfigDict(arbitrary_types_allowed=True, strict=True))
            try:
                allowed.validate_json(JSONEncoder().encode(value))
            except ValidationError:
                yield f"{place}.{name}"


def test_grafanas_own_types_know_every_field_of_the_board_and_allow_its_value() -> None:
    assert refused_by_grafana(BOARD) == []


@pytest.mark.parametrize(
    ("mistake", "named"),
    [
        (lambda panel: panel.update(discription="x"), "board.panels[0].discription"),
        (lambda panel: panel["targets"][0].update(exprr="x"), "board.panels[0].targets[0].exprr"),
        (lambda panel: panel["options"].update(colourMode="none"), "board.panels[0].options.colourMode"),
        (lambda panel: panel["options"].update(colorMode="blurred"), "board.panels[0].options.color_mode"),
        (
            lambda panel: panel["fieldConfig"]["defaults"].update(units="s"),
            "board.panels[0].fieldConfig.defaults.units",
        ),
        (lambda panel: panel["gridPos"].update(h="5"), "board.panels[0].grid_pos.h"),
    ],
)
def test_a_mistake_in_a_panel_is_named(mistake: Callable[[Any], None], named: str) -> None:
    board = deepcopy(BOARD)
    mistake(board["panels"][0])
    assert refused_by_grafana(board) == [named]
