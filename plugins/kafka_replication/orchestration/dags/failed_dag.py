"""The DAG ``<name>.failed`` of each replication: the command ``failed`` for users without a shell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, Param
from airflow.sdk.exceptions import AirflowFailException

from kafka_replication.config import Replication
from kafka_replication.config.values.names import FAILED_SUFFIX
from kafka_replication.model.errors import BadInput
from kafka_replication.model.failures import STATES, Action, FailureKind
from kafka_replication.model.mistakes import Mistakes
from kafka_replication.model.offsets import MAX_OFFSET
from kafka_replication.orchestration import task_run
from kafka_replication.orchestration.dags.dag_factory import by_hand
from kafka_replication.orchestration.operators.step_operators import StepOperator
from kafka_replication.orchestration.pages import form

if TYPE_CHECKING:
    from airflow.sdk import Context

    from kafka_replication.runs.failed.command import Asked

IN_XCOM = 1000  # most records in the XCom; the log shows the first fifty


class FailedOperator(StepOperator):
    """Lists, retries or discards failed records in the task's process. Fails if a record was not handled as asked."""

    def execute(self, context: Context) -> None:
        """Pushes the records as its return value, before it fails."""
        from kafka_replication.documents import as_json
        from kafka_replication.runs.failed.command import handle
        from kafka_replication.runs.failed.retry_discard import Decision

        params = context["params"]
        with task_run.opened(self.replication, context) as run:
            mistakes, filters = Mistakes(), asked(params)
            action = mistakes.of(lambda: action_of(params), Action.LIST)
            mistakes.of(lambda: filters.selection(action), None)
            mistakes.raise_all()
            by = decided_by(params, context["dag_run"]) if action in (Action.RETRY, Action.DISCARD) else ""
            answer = handle(run, action, filters, Decision(by=by, reason=form.text(params["reason"])))
        document = as_json(answer.document)
        context["ti"].xcom_push("return_value", {**document, "records": document["records"][:IN_XCOM]})
        self.log.info("%s:\n%s", action, answer.text)
        if answer.failed:
            raise AirflowFailException("some records stay as they were; the log and the XCom say why")


def action_of(params: Any) -> Action:
    """The action that the form asks for; empty means list. Raises BadInput."""
    action = form.text(params["action"]) or Action.LIST
    if action not in set(Action):
        raise BadInput(f"action: {action!r} is no action", f"one of {', '.join(Action)}")
    return Action(action)


def decided_by(params: Any, dag_run: Any) -> str:
    """The name in the form; without one, the user who triggered the run in Airflow. Raises BadInput."""
    by = form.text(params["by"]) or form.text(dag_run.triggering_user_name)
    if not by:
        raise BadInput(
            "the field Who is empty, and Airflow does not know who triggered the run",
            "trigger again with a name in the field Who",
        )
    return by


def asked(params: Any) -> Asked:
    """The filters of the trigger's form; an empty field means all."""
    from kafka_replication.runs.failed.command import Asked

    return Asked(
        topic=form.text(params["topic"]),
        partition=params["partition"],
        from_=params["from"],
        until=params["until"],
        kind=form.text(params["kind"]),
        state=form.text(params["state"]),
        everything=params["all"],
    )


def build_failed_dag(replication: Replication) -> DAG:
    # Their values are examples, not an enum: an enum's empty choice is shown as null, and Airflow answers a wrong value
    # with the schema. `action_of` and `Asked` read them.
    params = {
        "action": form.text_field(
            "Action",
            "What to do: list, show, retry or discard; empty means list. A retry copies the records again once the"
            " cause is gone, behind everything that is on the target: newer records then lie before them. A discard"
            " gives them up.",
            *Action,
        ),
        "topic": form.text_field("Topic", "Only of this source topic; empty means all."),
        "partition": form.number_field("Partition", 2**31 - 1, "Only of this partition; empty means all."),
        "from": form.number_field("From", MAX_OFFSET, "Only from this source offset on."),
        "until": form.number_field("Until", MAX_OFFSET, "Only before this source offset."),
        "kind": form.text_field(
            "Kind",
            f"Only records that failed for this reason: {', '.join(FailureKind)}; empty means all.",
            *FailureKind,
        ),
        "state": form.text_field(
            "State",
            "Only records in this state; empty means records still waiting for a decision, any means all.",
            *STATES,
            "any",
        ),
        "all": Param(
            False,
            type="boolean",
            title="All",
            description="Retry or discard all records; needed if no filter above is set.",
        ),
        "by": form.text_field(
            "Who",
            "Who decides on a retry or discard, for the history of the records; empty means you, as Airflow knows you.",
        ),
        "reason": form.text_field("Why", "The reason for a retry or discard, for the history of the records."),
    }
    with by_hand(
        replication,
        FAILED_SUFFIX,
        f"Records that {replication.name} could not copy: list, retry, discard",
        "What to do with records that could not be copied. See docs/failed-records.md.",
        params,
    ) as dag:
        FailedOperator(task_id="handle", replication=replication)
    return dag
