"""The DAG ``<name>.repair`` of each replication: the commands ``approve-gap`` and ``reset``.

The DAG ``<name>.audit`` of each replication: not scheduled, with one task that only reads.

The DAG ``<name>.failed`` of each replication: the command ``failed`` for users without a shell.

The DAG ``<name>.groups`` of each replication that moves consumer groups: the command ``groups``.
"""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.sdk import DAG, Param
from airflow.sdk.exceptions import AirflowFailException

from kafka_replication.config import Replication
from kafka_replication.config.names import AUDIT_SUFFIX, FAILED_SUFFIX, GROUPS_SUFFIX, REPAIR_SUFFIX
from kafka_replication.model.choices import STATES, Action, FailureKind
from kafka_replication.model.errors import BadInput, Mistakes
from kafka_replication.model.offsets import MAX_OFFSET, OffsetRange, TopicPartition
from kafka_replication.orchestration import task_run
from kafka_replication.orchestration.dag_factory import by_hand, dry_run_field, number_field, switch_field, text_field
from kafka_replication.orchestration.operators import OnSparkOperator, StepOperator
from kafka_replication.orchestration.task_run import form_text

if TYPE_CHECKING:
    from airflow.sdk import Context

    from kafka_replication.runs.audit import AuditRequest
    from kafka_replication.runs.failed import Asked
    from kafka_replication.runs.repair import Approval
    from kafka_replication.runs.run import Run

A = TypeVar("A", bound=StrEnum)
# Most differing ranges per partition in the XCom, of which the log shows the first ten; most failed records in it, of
# which the log shows the first fifty.
IN_XCOM = 1000


class AuditOperator(OnSparkOperator):
    """Compares copied ranges with the source again, a large amount on Spark, and fails if something differs."""

    ui_color = "#e8f0fe"

    def execute(self, context: Context) -> None:
        """Pushes the report as its return value, before it fails."""
        from kafka_replication.documents import as_json
        from kafka_replication.runs import audit as auditing

        with task_run.opened(self.replication, context) as run, self.launcher() as spark:
            report = auditing.audit(run, audit_request(context["params"]), spark)
        context["ti"].xcom_push("return_value", as_json(report.document(IN_XCOM)))
        self.log.info("audit: %s\n%s", report.outcome, report.text())
        if unclean := [partition for partition in report.partitions if partition.outcome != "clean"]:
            names = ", ".join(f"{partition.key.source} {partition.outcome}" for partition in unclean)
            raise AirflowFailException(
                f"{len(unclean)} of {len(report.partitions)} partitions are not clean: {names}; the log and the XCom"
                " say where"
            )


def audit_request(params: Any) -> AuditRequest:
    """The request in the trigger's form; an empty field means all. Raises BadInput."""
    from kafka_replication.runs.audit import AuditRequest
    from kafka_replication.verification.auditing import drawn

    from_, until = params["from"] or 0, params["until"]
    try:
        range_ = OffsetRange(from_, MAX_OFFSET if until is None else until)
    except ValueError as e:
        raise BadInput(f"from {from_}, until {until}: {e}", "trigger again with offsets in order") from e
    sample = drawn(params["sample"], params["seed"])
    return AuditRequest(form_text(params["topic"]) or None, params["partition"], range_, sample)


def build_audit_dag(replication: Replication) -> DAG:
    params = {
        "topic": text_field("Topic", "A source topic; empty means all."),
        "partition": number_field("Partition", 2**31 - 1, "Empty means all."),
        "from": number_field("From", MAX_OFFSET, "The first source offset; empty means the beginning."),
        "until": number_field(
            "Until", MAX_OFFSET, "The source offset to stop at; empty means the end. Both are widened to whole chunks."
        ),
        "sample": number_field(
            "Sample", 2**31 - 1, "Only so many chunks of each partition; empty means all of them.", 1
        ),
        "seed": number_field(
            "Seed", 2**31 - 1, "Draws the sample that an earlier report names; empty means another one."
        ),
    }
    with by_hand(
        replication,
        AUDIT_SUFFIX,
        f"Compares what {replication.name} copied with the source",
        "Reads both sides once and changes nothing; fails if something differs. See docs/gaps-and-audit.md.",
        params,
    ) as dag:
        AuditOperator(task_id="audit", replication=replication)
    return dag


class FailedOperator(StepOperator):
    """Lists, retries or discards failed records in the task's process. Fails if a record was not handled as asked."""

    def execute(self, context: Context) -> None:
        """Pushes the records as its return value, before it fails."""
        from kafka_replication.documents import as_json
        from kafka_replication.runs.failed import handle
        from kafka_replication.runs.retry_discard import Decision

        params = context["params"]
        with task_run.opened(self.replication, context) as run:
            mistakes, filters = Mistakes(), asked(params)
            action = mistakes.of(lambda: action_of(params, Action, Action.LIST), Action.LIST)
            mistakes.of(lambda: filters.selection(action), None)
            mistakes.raise_all()
            by = decided_by(params, context["dag_run"]) if action in (Action.RETRY, Action.DISCARD) else ""
            answer = handle(run, action, filters, Decision(by=by, reason=form_text(params["reason"])))
        document = as_json(answer.document)
        context["ti"].xcom_push("return_value", {**document, "records": document["records"][:IN_XCOM]})
        self.log.info("%s:\n%s", action, answer.text)
        if answer.failed:
            raise AirflowFailException("some records stay as they were; the log and the XCom say why")


def action_of(params: Any, actions: type[A], if_empty: str = "") -> A:
    """The one of these actions that the form asks for. Raises BadInput."""
    action = form_text(params["action"]) or if_empty
    if action not in set(actions):
        raise BadInput(f"action: {action!r} is no action", f"trigger again with one of {', '.join(actions)}")
    return actions(action)


def decided_by(params: Any, dag_run: Any) -> str:
    """The name in the form; without one, the user who triggered the run in Airflow. Raises BadInput."""
    by = form_text(params["by"]) or form_text(dag_run.triggering_user_name)
    if not by:
        raise BadInput(
            "the field Who is empty, and Airflow does not know who triggered the run",
            "trigger again with a name in the field Who",
        )
    return by


def asked(params: Any) -> Asked:
    """The filters of the trigger's form; an empty field means all."""
    from kafka_replication.runs.failed import Asked

    return Asked(
        topic=form_text(params["topic"]),
        partition=params["partition"],
        from_=params["from"],
        until=params["until"],
        kind=form_text(params["kind"]),
        state=form_text(params["state"]),
        everything=params["all"],
    )


def build_failed_dag(replication: Replication) -> DAG:
    # Their values are examples, not an enum: an enum's empty choice is shown as null, and Airflow answers a wrong value
    # with the schema. `action_of` and `Asked` read them.
    params = {
        "action": text_field(
            "Action",
            "What to do: list, show, retry or discard; empty means list. A retry copies the records again once the"
            " cause is gone, behind everything that is on the target: newer records then lie before them. A discard"
            " gives them up.",
            *Action,
        ),
        "topic": text_field("Topic", "Only of this source topic; empty means all."),
        "partition": number_field("Partition", 2**31 - 1, "Only of this partition; empty means all."),
        "from": number_field("From", MAX_OFFSET, "Only from this source offset on."),
        "until": number_field("Until", MAX_OFFSET, "Only before this source offset."),
        "kind": text_field(
            "Kind",
            f"Only records that failed for this reason: {', '.join(FailureKind)}; empty means all.",
            *FailureKind,
        ),
        "state": text_field(
            "State",
            "Only records in this state; empty means records still waiting for a decision, any means all.",
            *STATES,
            "any",
        ),
        "all": switch_field("All", "Retry or discard all records; needed if no filter above is set."),
        "by": text_field(
            "Who",
            "Who decides on a retry or discard, for the history of the records; empty means you, as Airflow knows you.",
        ),
        "reason": text_field("Why", "The reason for a retry or discard, for the history of the records."),
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


class GroupsOperator(StepOperator):
    """Moves consumer groups, or shows where they would go on. Fails if a group cannot be moved."""

    def execute(self, context: Context) -> None:
        """Pushes the groups as its return value, before it fails."""
        from kafka_replication.documents import as_json
        from kafka_replication.runs import groups

        params = context["params"]
        with task_run.opened(self.replication, context) as run:
            only = [line for line in params["groups"] or () if line]
            document = groups.move(run, apply=not params["dry_run"], only=only)
        context["ti"].xcom_push("return_value", as_json(document))
        self.log.info("consumer groups:\n%s", document.text())
        if document.failed:
            raise AirflowFailException("some groups were not moved; the log and the XCom say why")


def build_groups_dag(replication: Replication) -> DAG:
    params = {
        "groups": Param(
            None,
            type=["null", "array"],
            items={"type": "string"},
            title="Groups",
            description="Only these consumer groups, one a line; empty means all that the file selects.",
        ),
        "dry_run": dry_run_field(False),
    }
    seconds = replication.groups.interval
    with by_hand(
        replication,
        GROUPS_SUFFIX,
        f"Lets consumer groups go on at the same place on the target of {replication.name}",
        "Translates what groups have committed on the source, and commits it on the target, for groups without members"
        " there. See docs/consumer-groups.md.",
        params,
        schedule=timedelta(seconds=seconds) if seconds else None,
        max_active_runs=1,
    ) as dag:
        GroupsOperator(task_id="move", replication=replication)
    return dag


class Repair(StrEnum):
    """The choices of the form."""

    APPROVE_GAP = "approve-gap"
    RESET = "reset"


class RepairOperator(StepOperator):
    """Approves a gap, or starts a topic again, under a lease of its target topic. Pushes the command's document."""

    def execute(self, context: Context) -> dict[str, Any]:
        """Raises AirflowException, with what is wrong and the remedy."""
        params = context["params"]
        with task_run.opened(self.replication, context) as run:
            if action_of(params, Repair) == Repair.RESET:
                return self._reset(run, params)
            return self._approve(run, approval_of(params, context["dag_run"]))

    def _approve(self, run: Run, approval: Approval) -> dict[str, Any]:
        from kafka_replication.documents import ApprovedDocument, GapRow, as_json
        from kafka_replication.runs import repair as approving
        from kafka_replication.runs.leasing import leased, topic_scope

        key = approval.key(run.replication)
        with leased(run, topic_scope(key.target_topic), "repair") as held:
            gap, new = approving.approve(held, approval)
        shown = GapRow.of(key, gap)
        self.log.info("%s; %s", shown, "the next run continues after the gap" if new else "it was recorded before")
        return dict(as_json(ApprovedDocument(replication=run.replication.name, new=new, gap=shown)))

    def _reset(self, run: Run, params: Any) -> dict[str, Any]:
        """The form names the topic twice. Raises BadInput."""
        from kafka_replication.documents import ResetDocument, as_json
        from kafka_replication.runs.leasing import leased, topic_scope
        from kafka_replication.runs.reset import reset_topic

        topic, confirm = form_text(params["topic"]), form_text(params["confirm"])
        if not topic or confirm != topic:
            raise BadInput(
                f"confirm: {confirm!r} is not the topic {topic!r}; nothing was changed",
                "trigger again with the topic's name in both fields",
            )
        with leased(run, topic_scope(run.replication.target_topic(topic)), "repair") as held:
            document = ResetDocument.of(run.replication.name, reset_topic(held, topic))
        for row in document.partitions:
            self.log.info("%s: generation %d starts at offset %d", row.key, row.generation, row.start)
        return dict(as_json(document))


def approval_of(params: Any, dag_run: Any) -> Approval:
    """The approval in the form, by whom it names, or else by the user who triggered the run. Raises BadInput."""
    from kafka_replication.runs.repair import Approval

    missing = [name for name in ("topic", "partition", "from", "until") if params[name] in (None, "")]
    if missing:
        raise BadInput(f"the form does not say {', '.join(missing)}", "trigger again with exactly the lost offsets")
    try:
        partition = TopicPartition(form_text(params["topic"]), params["partition"])
        range_ = OffsetRange(params["from"], params["until"])
    except ValueError as e:
        raise BadInput(f"no range of a partition: {e}", "trigger again with the lost offsets in order") from e
    by = decided_by(params, dag_run)
    target = form_text(params["target_topic"]) or None
    return Approval(at=partition, range=range_, reason=form_text(params["reason"]), by=by, target_topic=target)


def build_repair_dag(replication: Replication) -> DAG:
    params = {
        "action": text_field(
            "Action",
            "Approve-gap gives up exactly the lost source offsets; reset starts a topic again that was re-created.",
            *Repair,
        ),
        "topic": text_field("Topic", "The source topic."),
        "partition": number_field("Partition", 2**31 - 1, "Its partition, for a gap."),
        "from": number_field("From", MAX_OFFSET, "The first lost offset, for a gap."),
        "until": number_field("Until", MAX_OFFSET, "The first offset after the gap."),
        "reason": text_field("Why", "Why the loss is accepted. Reports show it from then on."),
        "by": text_field("Who", "Who approves; empty means you, as Airflow knows you."),
        "target_topic": text_field("Target topic", "For a gap in what a backfill copied to another topic."),
        "confirm": text_field("Confirm", "For a reset: the topic's name again."),
    }
    with by_hand(
        replication,
        REPAIR_SUFFIX,
        f"Approves a gap of {replication.name}, or starts one of its topics again",
        "What to do with source offsets that are lost, or a topic that was re-created: docs/gaps-and-audit.md.",
        params,
        max_active_runs=1,
    ) as dag:
        RepairOperator(task_id="repair", replication=replication)
    return dag
