"""The sections about alerts."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field

from kafka_replication.config.sections.base import DAY, ConnectionId, Section, Text, Whole
from kafka_replication.config.values import names


class Lag(Section):
    """Limits for the target's distance behind the source. Beyond one `status` exits with 1, and an alert is sent."""

    records: Whole | None = Field(
        default=None,
        ge=1,
        description=(
            "Most offsets of one partition between the watermark and the end of the source; null means no limit."
        ),
    )
    seconds: Whole | None = Field(
        default=None,
        ge=1,
        description=(
            "Greatest age in seconds of the oldest record that is not yet verified on the target; null means no limit."
            " Choose more than the time between two runs."
        ),
    )


class Notifier(Section):
    """An Airflow notifier."""

    class_: Annotated[str, AfterValidator(names.check_class)] = Field(
        alias="class", description="The class, written `package.module.Class`, that Airflow can import."
    )
    arguments: dict[Text, Any] = Field(
        default_factory=dict,
        description=(
            "Its arguments, with Airflow's templates: `{{ alert_title }}` is the alert's first line and `{{ alert }}`"
            " its text. Write no secrets here; notifiers take connections."
        ),
    )


class Alerts(Section):
    """The people to alert when something is wrong, and the limits from which on it is wrong. See docs/alerts.md."""

    apprise: ConnectionId | None = Field(
        default=None,
        description=(
            "Id of an Airflow connection of type `apprise`: its addresses (mail, chat, pagers, webhooks) get every"
            " alert, from Airflow and from the command line."
        ),
    )
    notifiers: tuple[Notifier, ...] = Field(
        default=(),
        description=(
            "Airflow notifiers that get every alert, from Airflow and, where apache-airflow is installed, from the"
            " command line. Each has a `class`, written `package.module.Class`, and its `arguments`;"
            " `{{ alert_title }}`, `{{ alert }}` and `{{ alert_fields }}` stand for the alert in them."
        ),
    )
    stalled_after: Whole = Field(
        default=600,
        ge=1,
        le=DAY,
        description=(
            "Seconds after which there is an alert about a run without progress, a cluster or store that cannot be"
            " reached, and a scheduled run that did not start."
        ),
    )
    lag: Lag = Field(default_factory=Lag, description="How far the target may be behind the source.")

    @property
    def names_somebody(self) -> bool:
        """True if an alert reaches anybody."""
        return self.apprise is not None or bool(self.notifiers)
