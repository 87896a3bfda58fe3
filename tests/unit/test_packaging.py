"""pyproject.toml as the wheel's metadata shows it: ranges that hold the pins, extras, and what Airflow finds."""

from __future__ import annotations

import ast
import sys
import tomllib
from functools import cache
from importlib import import_module
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from airflow.plugins_manager import AirflowPlugin
from airflow.providers_manager import _create_provider_info_schema_validator
from packaging.requirements import Requirement

from kafka_replication.alerting.telling import AppriseChannel, Message
from kafka_replication.cli import command_frame
from kafka_replication.config import Replication
from kafka_replication.model.errors import BadInput
from kafka_replication.runtime import extras
from kafka_replication.spark import submit
from tests.unit.test_lock import pins

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "plugins" / "kafka_replication"
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = {name: [Requirement(each) for each in texts] for name, texts in PROJECT["optional-dependencies"].items()}
WHEEL = [*map(Requirement, PROJECT["dependencies"]), *(each for extra in EXTRAS.values() for each in extra)]
# Distributions whose module has another name.
MODULES = {
    "prometheus-client": "prometheus_client",
    "apache-airflow": "airflow",
    "pyyaml": "yaml",
    "confluent-kafka": "confluent_kafka",
    "opensearch-py": "opensearchpy",
}
# Imported where they are, and an error says what is missing where they are not.
CLOUD = {"aws_msk_iam_sasl_signer", "google", "psycopg"}
BROUGHT = {
    "annotated_types",
    "fastapi",
    "jinja2",
    "openlineage",
    "py4j",
    "pydantic_core",
    "starlette",
    "typing_extensions",
}  # by pydantic, pyspark, OpenLineage's provider and Airflow (the page is served by its API server alone), in the version that these need
# Of this repository's own programs, or needed by a provider.
NOT_IN_THE_WHEEL = {"httpx", "pandas", "pyarrow"}
# It calls us where somebody has installed it, and nothing here needs it: tests/dags/test_lineage.py.
UNPINNED = {"apache-airflow-providers-openlineage"}


@pytest.mark.parametrize(
    "requirement", [each for each in WHEEL if each.name not in UNPINNED], ids=lambda each: each.name
)
def test_a_range_of_the_wheel_holds_the_version_that_the_tests_run_with(requirement: Requirement) -> None:
    (pinned,) = pins("requirements.txt")[requirement.name]
    assert requirement.specifier.contains(pinned)
    assert not any(each.operator in ("==", "===") for each in requirement.specifier), "a pin moves what others have"
    assert {each.operator[0] for each in requirement.specifier} == {"<", ">"}, "both ends are named"


def test_every_pin_is_of_the_wheel_or_of_this_repository_alone() -> None:
    assert pins("requirements.txt").keys() - {each.name for each in WHEEL} == NOT_IN_THE_WHEEL


@cache
def imported() -> frozenset[str]:
    """The packages that the product imports from outside, also inside functions."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module.split(".")[0])
    return frozenset(found) - set(sys.stdlib_module_names) - {"kafka_replication"}


def test_the_wheel_asks_for_what_the_product_imports_and_for_nothing_else() -> None:
    modules = {MODULES.get(each.name, each.name) for each in WHEEL}
    providers = {name for name in modules if name.startswith("apache-airflow-providers-") or name == "pyspark-client"}
    assert imported() - CLOUD - BROUGHT == modules - providers


def test_an_error_names_the_extra_that_brings_the_missing_package() -> None:
    assert extras.EXTRAS.keys() == EXTRAS.keys()
    for extra, requirements in EXTRAS.items():
        for requirement in requirements:
            module = MODULES.get(requirement.name, requirement.name)
            if module in imported():
                assert f"kafka-replication[{extra}]" in extras.install(f"{module}.something")
    assert extras.install("rich") == "install requirements.txt"


def test_pyspark_client_is_no_spark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The Spark provider brings it, and it has PySpark's modules without Spark."""
    installed = ModuleType("pyspark")
    installed.__spec__ = ModuleSpec("pyspark", None, origin=str(tmp_path / "pyspark" / "__init__.py"))
    monkeypatch.setitem(sys.modules, "pyspark", installed)
    with pytest.raises(BadInput) as refused:
        submit.spark_home()
    assert "no spark-submit" in refused.value.what and "kafka-replication[spark]" in refused.value.remedy


def test_alerts_without_apprise_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)  # as if it were not installed
    with pytest.raises(BadInput) as refused:
        AppriseChannel("oncall", lambda: ["json://127.0.0.1"]).deliver(Message("title", "text"))
    document = {"name": "x", "source": {"connection": "a"}, "target": {"connection": "b"}, "topics": {"include": ["t"]}}
    [found] = command_frame.notifier_findings(Replication.model_validate({**document, "alerts": {"apprise": "oncall"}}))
    for what, remedy in ((refused.value.what, refused.value.remedy), (found.what, found.remedy)):
        assert "apprise is not installed" in what and "kafka-replication[alerts]" in remedy


def loaded(group: str) -> Any:
    ((_, target),) = PROJECT["entry-points"][group].items()
    module, _, name = target.partition(":")
    return getattr(import_module(module), name)


def test_airflow_can_show_the_provider_and_loads_the_plugin() -> None:
    info = loaded("apache_airflow_provider")()
    _create_provider_info_schema_validator().validate(info)  # type: ignore[no-untyped-call]
    assert info["package-name"] == PROJECT["name"]
    plugin = loaded("airflow.plugins")
    assert issubclass(plugin, AirflowPlugin)
    assert plugin is import_module("kafka_replication_plugin").KafkaReplicationPlugin
