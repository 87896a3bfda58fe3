"""The provider as Airflow finds it: its connection types with their forms, and the hooks behind the button that tests one."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import airflow.providers
import pytest
from airflow.providers_manager import ProvidersManager
from airflow.sdk.providers_manager_runtime import ProvidersManagerTaskRuntime

from kafka_replication.orchestration.provider import get_provider_info
from kafka_replication.orchestration.target_hooks import HBaseHook, OpenSearchHook, TargetHook
from stack.opensearch_server import OpenSearchServer
from stack.ports import LOOPBACK

NAME = "kafka-replication"
NOWHERE = {"host": LOOPBACK, "port": 1}


def test_airflow_lists_connection_types_with_their_forms(caplog: pytest.LogCaptureFixture) -> None:
    manager = ProvidersManager()  # type: ignore[no-untyped-call]
    runtime = ProvidersManagerTaskRuntime()  # type: ignore[no-untyped-call]
    found = {known.connection_type: known for known in manager.iter_connection_type_hook_ui_metadata()}
    fields = manager.connection_form_widgets
    with caplog.at_level(logging.WARNING):
        for kind in (HBaseHook, OpenSearchHook):
            assert found[kind.conn_type].hook_name == kind.hook_name
            hook = runtime.hooks[kind.conn_type]
            assert hook is not None and hook.package_name == NAME and hook.connection_testable
    assert not [line for line in caplog.messages if "kafka_replication" in line or "hbase" in line]
    assert {name for name in fields if name.startswith("extra__hbase")} == {
        "extra__hbase__transport",
        "extra__hbase__protocol",
    }
    assert fields["extra__opensearch__api_key"].is_sensitive
    behaviour = found["hbase"].field_behaviour
    assert (
        behaviour is not None
        and behaviour["placeholders"]["port"] == "9090"
        and "password" in behaviour["hidden_fields"]
    )


def test_the_type_of_a_provider_that_is_installed_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {kind["connection-type"] for kind in get_provider_info()["connection-types"]}
    (tmp_path / "opensearch").mkdir()
    (tmp_path / "opensearch" / "__init__.py").touch()
    monkeypatch.setattr(airflow.providers, "__path__", [*airflow.providers.__path__, str(tmp_path)])
    beside = {kind["connection-type"] for kind in get_provider_info()["connection-types"]}
    assert (own, beside) == ({"hbase", "opensearch"}, {"hbase"})


@pytest.mark.parametrize(
    ("hook", "connection", "named"),
    [
        (
            HBaseHook,
            {**NOWHERE, "extra": {"transport": None, "protocol": ""}},
            "does not answer",
        ),  # as a form leaves them
        (HBaseHook, {**NOWHERE, "extra": {"transport": "framed", "protocol": "binari"}}, "protocol is none of"),
        (HBaseHook, {**NOWHERE, "login": "me", "password": "p"}, "'login'"),
        (OpenSearchHook, {**NOWHERE, "extra": {"use_ssl": None}}, "does not answer"),
        (OpenSearchHook, {}, "names no host"),
    ],
)
def test_a_connection_that_cannot_be_used_is_told_with_the_remedy(
    hook: type[TargetHook], connection: dict[str, object], named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_THERE", json.dumps({"conn_type": hook.conn_type, **connection}))
    good, said = hook("there").test_connection()
    assert not good and named in said and "Remedy: " in said


def test_a_target_that_answers_is_told(opensearch: OpenSearchServer, monkeypatch: pytest.MonkeyPatch) -> None:
    address = opensearch.url.removeprefix("http://")
    host, _, port = address.partition(":")
    monkeypatch.setenv("AIRFLOW_CONN_THERE", json.dumps({"conn_type": "opensearch", "host": host, "port": int(port)}))
    good, said = OpenSearchHook("there").test_connection()
    assert good and address in said
