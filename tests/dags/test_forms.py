"""The trigger's form of every DAG, as Airflow's page sends it and as its server and our tasks read it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG, Param
from airflow.sdk.definitions.param import ParamsDict
from airflow.sdk.exceptions import AirflowFailException, ParamValidationError

from kafka_replication.config import Replication
from kafka_replication.model.choices import Action
from kafka_replication.model.errors import BadInput
from kafka_replication.model.offsets import OffsetRange
from kafka_replication.orchestration import operators, task_run
from kafka_replication.orchestration.dag_factory import build_backfill_dag, build_dag
from kafka_replication.orchestration.repair_dags import (
    action_of,
    asked,
    audit_request,
    build_audit_dag,
    build_failed_dag,
    decided_by,
)
from kafka_replication.planning.backfill_request import BackfillRequest
from kafka_replication.runs.audit import AuditRequest
from kafka_replication.runs.failed import Asked
from kafka_replication.runs.run import Request
from kafka_replication.verification.auditing import Sample
from tests.dags.test_backfill_dag import INTERVAL, plan_task, replication
from tests.support.airflow_page import EMPTIED, sends

WRONG = {"action": "drop", "kind": "nope", "state": "gone", "from": 5, "until": 3}
NAMES = {"topics": {"include": ["payments", "orders"]}}
Read = Callable[[Replication, dict[str, Any]], object]


def read_audit(of: Replication, params: dict[str, Any]) -> AuditRequest:
    return audit_request(params)


def read_failed(of: Replication, params: dict[str, Any]) -> Asked:
    return asked(params)


FORMS: list[tuple[Callable[[Replication], DAG], Read, object]] = [
    (build_dag, task_run.request_of, Request()),
    (
        build_backfill_dag,
        operators.request_of,
        BackfillRequest(topics=(), from_=None, until=None, dry_run=True),
    ),
    (build_audit_dag, read_audit, AuditRequest()),
    (build_failed_dag, read_failed, Asked()),
]


@pytest.mark.parametrize("of", [replication(), replication(**NAMES), replication(**INTERVAL)], ids=["^", "names", "i"])
@pytest.mark.parametrize(("build", "read", "everything"), FORMS)
def test_a_form_that_is_left_as_it_stands_starts_a_run_of_everything(
    build: Callable[[Replication], DAG], read: Read, everything: object, of: Replication
) -> None:
    params = build(of).params
    values = dict(params.dump())
    assert all(sends(params.get_param(name).schema, value) for name, value in values.items())
    params.validate()
    if values:  # a data interval has no form
        assert read(of, values) == everything


@pytest.mark.parametrize("of", [replication(), replication(**NAMES)], ids=["^", "names"])
@pytest.mark.parametrize(("build", "read", "everything"), FORMS)
def test_a_field_that_is_emptied_means_all(
    build: Callable[[Replication], DAG], read: Read, everything: object, of: Replication
) -> None:
    params = build(of).params
    values = dict(params.dump())
    for name, value in values.items():
        if isinstance(value, bool):
            continue  # a switch is never empty
        param = params.get_param(name)
        is_list = "array" in (param.schema.get("type") or ())
        for emptied in EMPTIED if is_list else [None]:
            assert sends(param.schema, emptied), name
            assert read(of, {**values, name: param.resolve(emptied)}) == everything


BLANK = ("", " ")  # what a script sends for a value that it does not have, and what a space in an empty field is


@pytest.mark.parametrize(("build", "read", "everything"), FORMS)
def test_a_blank_text_means_all_or_is_refused_by_the_name_of_its_field(
    build: Callable[[Replication], DAG], read: Read, everything: object
) -> None:
    params = build(replication()).params
    for name in params:
        for blank in BLANK:
            sent = {**params.dump(), name: Param(blank, **params.get_param(name).schema)}
            assert answer(read, sent) == everything or re.match(rf".*\b{name.rstrip('s')}s?: ", answer(read, sent)), (
                name
            )


def answer(read: Read, sent: Mapping[str, Any]) -> Any:
    """What the form is read as, or the text of its refusal."""
    try:
        return read(replication(), ParamsDict(dict(sent)).validate())
    except (BadInput, ParamValidationError) as refused:
        return str(refused)


def test_topics_are_offered_if_the_file_names_them() -> None:
    for build in (build_dag, build_backfill_dag):
        assert build(replication(**NAMES)).params.get_param("topics").schema["examples"] == ["orders", "payments"]
        assert "examples" not in build(replication()).params.get_param("topics").schema


def test_a_backfill_is_a_dry_run_unless_somebody_says_otherwise() -> None:
    assert build_backfill_dag(replication()).params["dry_run"] is True
    assert build_dag(replication()).params["dry_run"] is False


@pytest.mark.parametrize(
    ("build", "name", "value"),
    [
        (build_dag, "topics", "orders"),
        (build_dag, "topics", [1]),
        (build_dag, "until", 5),
        (build_dag, "dry_run", "yes"),
        (build_backfill_dag, "target_topic", 7),
        (build_audit_dag, "topic", 7),
        (build_audit_dag, "partition", "x"),
        (build_audit_dag, "from", -1),
    ],
)
def test_airflow_refuses_what_is_of_another_kind(build: Callable[[Replication], DAG], name: str, value: Any) -> None:
    with pytest.raises(ParamValidationError):
        build(replication()).params.get_param(name).resolve(value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"until": "tomorrow"}, "until: 'tomorrow' must be a time in RFC 3339"),
        ({"until": "earliest"}, "until: 'earliest' must be"),
        ({"until": "2030-01-31T06:00:00"}, "until: '2030-01-31T06:00:00' must say its time zone"),
        ({"until": "2030-02-30T06:00:00Z"}, "must be a time that exists"),
        ({"topics": ["a b"]}, "topic: 'a b' is no topic name to Kafka"),
        ({"topics": ["payments"]}, "is not a topic of replication orders-dr: topics.include selects"),
    ],
)
def test_the_task_refuses_the_rest_in_its_own_words(
    changes: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def touched(*_: object) -> None:
        raise AssertionError("something was started")

    monkeypatch.setattr(task_run, "opened", touched)
    monkeypatch.setattr(task_run, "working", touched)
    dag = build_dag(replication())
    params = {
        name: dag.params.get_param(name).resolve(value) for name, value in {**dag.params.dump(), **changes}.items()
    }
    with pytest.raises(AirflowFailException) as failed:
        plan_task(dag).execute({"params": params})
    assert words in str(failed.value)


@pytest.mark.parametrize("until", ["2030-01-31T06:00:00Z", "2030-01-31T06:00:00.5+02:00"])
def test_a_live_run_may_end_at_a_time(until: str) -> None:
    request = task_run.request_of(replication(), {"topics": ["orders", "", "orders"], "until": until, "dry_run": False})
    assert request.until is not None and request.topics == ("orders",)


def test_what_the_audits_form_says() -> None:
    asked = {"topic": "orders", "partition": 3, "from": 5, "until": 9, "sample": None, "seed": None}
    assert audit_request(asked) == AuditRequest("orders", 3, OffsetRange(5, 9))
    assert audit_request({**asked, "sample": 20, "seed": 7}).sample == Sample(20, 7)
    drawn = audit_request({**asked, "sample": 20}).sample
    assert drawn is not None and drawn.chunks == 20
    with pytest.raises(BadInput, match="without a sample"):
        audit_request({**asked, "seed": 7})
    with pytest.raises(BadInput, match="not an offset range"):
        audit_request({**asked, "until": 3})


def test_no_form_offers_a_value_that_a_person_reads_as_null() -> None:
    for build, *_ in FORMS:
        params = build(replication(**NAMES)).params
        for name in params:
            assert None not in params.get_param(name).schema.get("enum", ()), name


def test_all_values_that_are_wrong_are_named_at_once() -> None:
    params = build_failed_dag(replication()).params
    values = {name: params.get_param(name).resolve(value) for name, value in {**params.dump(), **WRONG}.items()}
    with pytest.raises(BadInput) as failed:
        action_of(values, Action, Action.LIST)
    assert "action: 'drop' is no action" in str(failed.value) and "list, show, retry, discard" in str(failed.value)
    with pytest.raises(BadInput) as failed:
        asked(values).selection(Action.LIST)
    for words in (
        "kind: 'nope' is no kind of failure",
        "state: 'gone' is no state",
        "from (5) is greater than until (3)",
        "too_large, refused",
        "quarantined, skipped",
    ):
        assert words in str(failed.value)


def test_of_two_bad_values_both_are_named() -> None:
    bad = {"topics": ["a b"], "until": "tomorrow", "dry_run": False}
    with pytest.raises(BadInput) as failed:
        task_run.request_of(replication(), bad)
    assert "'a b' is no topic name" in str(failed.value) and "until: 'tomorrow' must be a time" in str(failed.value)
    form = {**build_backfill_dag(replication()).params.dump(), "from": "x", "until": "-3", "partitions": "z"}
    with pytest.raises(BadInput) as failed:
        operators.request_of(replication(), form)
    for words in ("found 'x'", "until: must not be negative", "found '-3'", "partition: must be", "found 'z'"):
        assert words in str(failed.value)


def test_who_decides_is_the_user_of_airflow_if_the_form_does_not_say() -> None:
    run = SimpleNamespace(triggering_user_name="mia")
    assert decided_by({"by": " "}, run) == decided_by({"by": None}, run) == "mia"
    assert decided_by({"by": "ann "}, run) == "ann"
    with pytest.raises(BadInput, match="the field Who is empty"):
        decided_by({"by": None}, SimpleNamespace(triggering_user_name=None))


def test_the_page_of_a_scheduled_dag_says_what_triggering_it_while_it_is_paused_does() -> None:
    assert "paused" not in (build_dag(replication()).doc_md or "")
    page = build_dag(replication(schedule="@hourly")).doc_md or ""
    assert "while it is paused switches it on: Airflow first starts the scheduled run of the last data interval" in page


def test_a_page_names_the_other_dags_and_the_dry_run() -> None:
    page = build_dag(replication()).doc_md or ""
    for text in (
        "`orders-dr.backfill`",
        "`orders-dr.audit`",
        "`orders-dr.failed`",
        "`orders-dr.repair`",
        "**Dry run**",
    ):
        assert text in page
