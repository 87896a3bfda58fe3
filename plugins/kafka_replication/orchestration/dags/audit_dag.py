"""The DAG ``<name>.audit`` of each replication: not scheduled, with one task that only reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException

from kafka_replication.config import Replication
from kafka_replication.config.values.names import AUDIT_SUFFIX
from kafka_replication.model.errors import BadInput
from kafka_replication.model.offsets import MAX_OFFSET, OffsetRange
from kafka_replication.orchestration import task_run
from kafka_replication.orchestration.dags.dag_factory import by_hand
from kafka_replication.orchestration.operators.spark_submit import OnSparkOperator
from kafka_replication.orchestration.pages import form

if TYPE_CHECKING:
    from airflow.sdk import Context

    from kafka_replication.reporting.audit import AuditReport
    from kafka_replication.runs.audit.audit import AuditRequest

IN_XCOM = 1000  # most differing ranges per partition in the XCom; the log shows the first ten


class AuditOperator(OnSparkOperator):
    """Compares copied ranges with the source again, a large amount on Spark, and fails if something differs."""

    ui_color = "#e8f0fe"

    def execute(self, context: Context) -> None:
        """Pushes the report as its return value, before it fails."""
        from kafka_replication.documents import as_json
        from kafka_replication.runs.audit import audit as auditing

        with task_run.opened(self.replication, context) as run, self.launcher() as spark:
            report = auditing.audit(run, audit_request(context["params"]), spark)
        context["ti"].xcom_push("return_value", as_json(report.document(IN_XCOM)))
        self.log.info("audit: %s\n%s", report.outcome, report.text())
        _fail_unless_clean(report)


def _fail_unless_clean(report: AuditReport) -> None:
    unclean = [partition for partition in report.partitions if partition.outcome != "clean"]
    if unclean:
        names = ", ".join(f"{partition.key.source} {partition.outcome}" for partition in unclean)
        raise AirflowFailException(
            f"{len(unclean)} of {len(report.partitions)} partitions are not clean: {names}; the log and the XCom say"
            " where"
        )


def audit_request(params: Any) -> AuditRequest:
    """The request in the trigger's form; an empty field means all. Raises BadInput."""
    from kafka_replication.runs.audit.audit import AuditRequest
    from kafka_replication.verification.sample import drawn

    from_, until = params["from"] or 0, params["until"]
    try:
        range_ = OffsetRange(from_, MAX_OFFSET if until is None else until)
    except ValueError as e:
        raise BadInput(f"from {from_}, until {until}: {e}", "trigger again with offsets in order") from e
    sample = drawn(params["sample"], params["seed"])
    return AuditRequest(form.text(params["topic"]) or None, params["partition"], range_, sample)


def build_audit_dag(replication: Replication) -> DAG:
    params = {
        "topic": form.text_field("Topic", "A source topic; empty means all."),
        "partition": form.number_field("Partition", 2**31 - 1, "Empty means all."),
        "from": form.number_field("From", MAX_OFFSET, "The first source offset; empty means the beginning."),
        "until": form.number_field(
            "Until", MAX_OFFSET, "The source offset to stop at; empty means the end. Both are widened to whole chunks."
        ),
        "sample": form.number_field(
            "Sample", 2**31 - 1, "Only so many chunks of each partition; empty means all of them.", 1
        ),
        "seed": form.number_field(
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
