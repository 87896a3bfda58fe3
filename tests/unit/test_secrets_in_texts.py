"""What may hold a password shows it in no `repr` and in no error."""

from __future__ import annotations

import dataclasses
import importlib
import math
import pkgutil
import typing
from collections.abc import Iterator

import pytest
from pydantic import ValidationError

import kafka_replication
from kafka_replication.connections import Definition, SparkConnection
from kafka_replication.orchestration.notifiers import NotifierChannel
from kafka_replication.spark.jobs import JOB
from kafka_replication.wire.login import Bearer, Plain, Scram, Security
from kafka_replication.wire.oidc import Token, Tokens
from tests.support.jobs import job_with

SECRET = "do-not-show-me"
TOKEN = Token(value=SECRET, expires=math.inf, extensions=[("cluster", SECRET)])
HOLDING = {"some.password": SECRET}
# What a person wrote for readers, and what the ledger and Kafka hold: no setting of a client.
NO_SECRETS = frozenset(
    {
        "config.yaml.Tree.value",
        "kafka.connect_diagnosis.Asked.settings",
        "ledger.codec._Form.optional",
        "ledger.placement.UnknownPlacement.content",
        "reporting.certificate.Certificate.settings",
        "reporting.ledger.LedgerRow.position",
        "web.actions.Action.conf",
    }
)


@pytest.mark.parametrize(
    "value",
    [
        Security(login=Plain("me", SECRET)),
        Security(login=Scram("SCRAM-SHA-512", "me", SECRET)),
        Security(login=Bearer("me", Tokens(lambda _: TOKEN, "a test"), "")),
        TOKEN,
        Definition(connection_id="c", conn_type="kafka", extra=HOLDING),
        SparkConnection("spark://master:7077", {"spark.authenticate.secret": SECRET}),
        job_with(source=HOLDING, target=HOLDING),
        NotifierChannel("a.Notifier", HOLDING, HOLDING),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_text_of_a_value_has_no_secret(value: object) -> None:
    assert SECRET not in repr(value) and SECRET not in str(value)


def fields() -> Iterator[tuple[str, dataclasses.Field[typing.Any], typing.Any]]:
    """Of each value type of this package: its full name, the field, its type."""
    for module in pkgutil.walk_packages(kafka_replication.__path__, "kafka_replication."):
        if module.name.endswith("__main__"):
            continue
        for kind in vars(importlib.import_module(module.name)).values():
            if isinstance(kind, type) and dataclasses.is_dataclass(kind) and kind.__module__ == module.name:
                own = f"{module.name.removeprefix('kafka_replication.')}.{kind.__name__}"
                for each in dataclasses.fields(kind):
                    yield f"{own}.{each.name}", each, each.type


def is_of_anything(annotation: object) -> bool:
    return str(annotation).replace("typing.", "") in ("dict[str, Any]", "Mapping[str, Any]", "object")


def test_a_field_that_takes_settings_of_any_kind_is_not_shown() -> None:
    shown = {name for name, each, kind in fields() if each.repr and (each.name == "password" or is_of_anything(kind))}
    of_airflow = {name for name in shown if "Operator." in name}
    assert shown - of_airflow == NO_SECRETS


def test_an_error_about_what_was_sent_does_not_show_it() -> None:
    """Two versions of this package can meet where executors have one of their own."""
    with pytest.raises(ValidationError) as error:
        JOB.validate_json(f'{{"source": ["{SECRET}"]}}')
    assert SECRET not in str(error.value)
