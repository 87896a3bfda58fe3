"""Airflow executes every Python file below plugins/ as a top-level module; .airflowignore must keep the package out of that."""

from __future__ import annotations

from pathlib import Path

import pytest
from airflow._shared.module_loading.file_discovery import find_path_from_directory

PLUGINS = Path(__file__).resolve().parents[2] / "plugins"


@pytest.mark.parametrize("syntax", ["glob", "regexp"])
@pytest.mark.filterwarnings("ignore:GitWildMatchPattern")
def test_airflow_finds_the_plugin_module_and_nothing_of_the_package(syntax: str) -> None:
    found = {Path(path).relative_to(PLUGINS) for path in find_path_from_directory(PLUGINS, ".airflowignore", syntax)}
    assert {path for path in found if path.suffix == ".py"} == {Path("kafka_replication_plugin.py")}


def test_the_package_says_that_it_has_type_annotations() -> None:
    """Without this file (PEP 561) type checkers take everything from the package for Any."""
    assert (PLUGINS / "kafka_replication" / "py.typed").is_file()
