"""The DAG ``<name>.repair`` of each replication that asks for it: the commands ``approve-gap`` and ``reset``."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG

from kafka_replication.config import Replication
from kafka_replication.config.values.names import REPAIR_SUFFIX
from kafka_replication.model.errors import BadInput
from kafka_replication.model.offsets import MAX_OFFSET, OffsetRange, TopicPartition
from kafka_replication.orchestration import task_run
from kafka_replication.orchestration.dags.dag_factory import by_hand
from kafka_replication.orchestration.dags.failed_dag import decided_by
from kafka_replication.orchestration.operators.step_operators import StepOperator
from kafka_replication.orchestration.pages import form

if TYPE_CHECKING:
    from airflow.sdk import Context

    from kafka_replication.runs.repair.approval import Approval
    from kafka_replication.runs.run import Run


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
            if repair_of(params) is Repair.RESET:
                return self._reset(run, topic_to_reset(params))
            return self._approve(run, approval_of(params, context["dag_run"]))

    def _approve(self, run: Run, approval: Approval) -> dict[str, Any]:
        from kafka_replication.documents import ApprovedDocument, GapRow, as_json
        from kafka_replication.runs.leasing import leased, topic_scope
        from kafka_replication.runs.repair import approval as approving

        key = approval.key(run.replication)
        with leased(run, topic_scope(key.target_topic), "repair") as held:
            gap, new = approving.approve(held, approval)
        shown = GapRow.of(key, gap)
        self.log.info("%s; %s", shown, "the next run continues after the gap" if new else "it was recorded before")
        return dict(as_json(ApprovedDocument(replication=run.replication.name, new=new, gap=shown)))

    def _reset(self, run: Run, topic: str) -> dict[str, Any]:
        from kafka_replication.documents import ResetDocument, as_json
        from kafka_replication.runs.leasing import leased, topic_scope
        from kafka_replication.runs.repair.reset import reset_topic

        with leased(run, topic_scope(run.replication.target_topic(topic)), "repair") as held:
            document = ResetDocument.of(run.replication.name, reset_topic(held, topic))
        for row in document.partitions:
            self.log.info("%s: generation %d starts at offset %d", row.key, row.generation, row.start)
        return dict(as_json(document))


def repair_of(params: Any) -> Repair:
    """Raises BadInput if the form does not say which."""
    said = form.text(params["action"])
    if said not in set(Repair):
        raise BadInput(f"action: {said!r} is no action", f"trigger again with one of {', '.join(Repair)}")
    return Repair(said)


def topic_to_reset(params: Any) -> str:
    """The topic, if the form names it twice. Raises BadInput."""
    topic, confirm = form.text(params["topic"]), form.text(params["confirm"])
    if not topic or confirm != topic:
        raise BadInput(
            f"confirm: {confirm!r} is not the topic {topic!r}; nothing was changed",
            "trigger again with the topic's name in both fields",
        )
    return topic


def approval_of(params: Any, dag_run: Any) -> Approval:
    """The approval in the form, by whom it names, or else by the user who triggered the run. Raises BadInput."""
    from kafka_replication.runs.repair.approval import Approval

    missing = [name for name in ("topic", "partition", "from", "until") if params[name] in (None, "")]
    if missing:
        raise BadInput(f"the form does not say {', '.join(missing)}", "trigger again with exactly the lost offsets")
    try:
        at = TopicPartition(form.text(params["topic"]), params["partition"])
        range_ = OffsetRange(params["from"], params["until"])
    except ValueError as e:
        raise BadInput(f"no range of a partition: {e}", "trigger again with the lost offsets in order") from e
    by = decided_by(params, dag_run)
    target = form.text(params["target_topic"]) or None
    return Approval(at=at, range=range_, reason=form.text(params["reason"]), by=by, target_topic=target)


def build_repair_dag(replication: Replication) -> DAG:
    params = {
        "action": form.text_field(
            "Action",
            "Approve-gap gives up exactly the lost source offsets; reset starts a topic again that was re-created.",
            *Repair,
        ),
        "topic": form.text_field("Topic", "The source topic."),
        "partition": form.number_field("Partition", 2**31 - 1, "Its partition, for a gap."),
        "from": form.number_field("From", MAX_OFFSET, "The first lost offset, for a gap."),
        "until": form.number_field("Until", MAX_OFFSET, "The first offset after the gap."),
        "reason": form.text_field("Why", "Why the loss is accepted. Reports show it from then on."),
        "by": form.text_field("Who", "Who approves; empty means you, as Airflow knows you."),
        "target_topic": form.text_field("Target topic", "For a gap in what a backfill copied to another topic."),
        "confirm": form.text_field("Confirm", "For a reset: the topic's name again."),
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
