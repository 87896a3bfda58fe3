"""The base class of all sections of a replication, and the types of their fields.

Together with `model` the sections are the only place that knows a default. Times are seconds and sizes bytes. Values
that do not fit raise ``pydantic.ValidationError``. docs/configuration.md is generated from their descriptions.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from kafka_replication.config.values import names

DAY = 86_400


def _as_setting(value: object) -> object:
    """Kafka and Spark take settings as text: a number or a boolean in the file becomes its text."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int) else value


def _check_no_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be empty")
    return text


def listed(value: object) -> object:
    """A list. If the file has a single item instead of a list, it is a list with this item."""
    return (value,) if isinstance(value, str) else value


Whole = Annotated[int, Field(strict=True)]
Flag = Annotated[bool, Field(strict=True)]
Text = Annotated[str, AfterValidator(_check_no_blank)]
Tag = Annotated[str, Field(max_length=100), AfterValidator(_check_no_blank)]  # Airflow's TAG_MAX_LEN
Settings = dict[Text, Annotated[str, BeforeValidator(_as_setting, json_schema_input_type=str | int | bool)]]
ConnectionId = Annotated[str, AfterValidator(names.check_connection)]
TopicEntry = Annotated[str, AfterValidator(names.check_topic_entry)]


class Section(BaseModel):
    """The base of all sections: unknown keys are refused, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, serialize_by_alias=True)
