"""The DAGs of a replication that can be sealed. ``<name>.drill``: the command ``drill``. ``<name>.turn``: the commands
``cutover``, ``failover`` and ``failback``.
"""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, Param
from airflow.sdk.exceptions import AirflowFailException

from kafka_replication.config import Replication
from kafka_replication.config.names import DRILL_SUFFIX, TURN_SUFFIX
from kafka_replication.config.reading import load_all
from kafka_replication.model.errors import BadInput
from kafka_replication.orchestration import task_run
from kafka_replication.orchestration.dag_factory import by_hand, dry_run_field, number_field, switch_field, text_field
from kafka_replication.orchestration.operators import OnSparkOperator, StepOperator
from kafka_replication.orchestration.repair_dags import action_of, decided_by
from kafka_replication.orchestration.task_run import form_text

if TYPE_CHECKING:
    from airflow.sdk import Context

    from kafka_replication.reporting.failover import FailoverDocument
    from kafka_replication.reporting.turning import TurnDocument
    from kafka_replication.runs.cutover import Wishes
    from kafka_replication.runs.run import Run


class DrillOperator(StepOperator):
    """Says what a failover would leave if the source died now. Fails if that is worse than the file asks."""

    def execute(self, context: Context) -> None:
        """Pushes the document as its return value, before it fails."""
        from kafka_replication.documents import as_json
        from kafka_replication.runs.drill import drill

        with task_run.opened(self.replication, context, looks=True) as run:
            document = drill(run)
        context["ti"].xcom_push("return_value", as_json(document))
        self.log.info("%s", document.text)
        if document.failed:
            errors = [f"{row.source}: {row.error}" for row in document.failover.partitions if row.error]
            raise AirflowFailException("; ".join([document.said, *document.worse, *errors]))


def build_drill_dag(replication: Replication) -> DAG:
    every = replication.objectives.drill_every
    with by_hand(
        replication,
        DRILL_SUFFIX,
        f"What would be left of {replication.name} if its source died now",
        "Does what a failover would do, as far as that changes nothing, and says how many records and which consumer"
        " groups would be concerned. See docs/failover.md.",
        {},
        schedule=timedelta(seconds=every) if every else None,
        max_active_runs=1,
    ) as dag:
        DrillOperator(task_id="drill", replication=replication)
    return dag


class Turn(StrEnum):
    """The choices of the form, called as the commands."""

    CUTOVER = "cutover"
    ABORT = "cutover --abort"
    FAILOVER = "failover"
    UNDO = "failover --undo"
    FAILBACK = "failback"


class TurnOperator(OnSparkOperator):
    """Cuts the replication over, gives its source up, or goes back to it. Fails with the step that is blocked."""

    ui_color = "#fde3e3"

    def __init__(self, *, folder: Path, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.folder = folder

    def execute(self, context: Context) -> None:
        """Pushes the document as its return value, before it fails."""
        from kafka_replication.documents import as_json
        from kafka_replication.runs.cutover import QUIET, Wishes

        params = context["params"]
        with task_run.opened(self.replication, context, looks=params["dry_run"]) as run:
            wishes = Wishes(
                by=decided_by(params, context["dag_run"]),
                reason=form_text(params["reason"]),
                quiet=params["quiet"] or QUIET,
                deny=params["deny_producers"],
                sample=params["audit"] or 0,
                aside=params["surplus_aside"],
            )
            document = self._turn(run, turn_of(params), wishes, params)
        context["ti"].xcom_push("return_value", as_json(document))
        self.log.info("%s", document.text)
        if document.applied and document.failed:
            raise AirflowFailException(f"{_obstacle(document)}. Remove what stands in the way, and trigger again")

    def _turn(self, run: Run, action: Turn, wishes: Wishes, params: Any) -> FailoverDocument | TurnDocument:
        from kafka_replication.orchestration.connections import AirflowConnections
        from kafka_replication.runs import cutover, failback, failover
        from kafka_replication.runs.run import open_run

        dry = params["dry_run"]
        if action == Turn.FAILBACK:
            other = self._other(form_text(params["back"]))
            back = open_run(other, AirflowConnections(), run.store, run.run_id, run.deadline, looks=dry)
            return (failback.preview if dry else failback.failback)(run, back, wishes, self.launcher())
        if action == Turn.ABORT:
            return cutover.abort(run, wishes, self.launcher())
        if action == Turn.CUTOVER:
            return (cutover.preview if dry else cutover.cutover)(run, wishes, self.launcher())
        if dry:
            return failover.preview(run)
        return failover.undo(run) if action == Turn.UNDO else failover.failover(run, wishes, self.launcher())

    def _other(self, name: str) -> Replication:
        """The replication of the other direction, among the files of the folder. Raises BadInput."""
        replications, _ = load_all(self.folder)
        found = next((one for one in replications.values() if one.name == name), None)
        if found is None:
            raise BadInput(
                f"no replication is called {name!r}" if name else "the field Other direction is empty",
                "trigger again with the name of the replication that copies from this target to this source",
            )
        return found


def turn_of(params: Any) -> Turn:
    """The action that the form asks for. Raises BadInput."""
    action = action_of(params, Turn)
    if params["dry_run"] and action in (Turn.ABORT, Turn.UNDO):
        raise BadInput(
            f"{action} has no dry run: it looks first, and where it is refused it says why and changes nothing",
            "trigger again with Dry run switched off, to do it",
        )
    if params["deny_producers"] and action == Turn.FAILBACK:  # the rule would deny it to the copies that come then, too
        raise BadInput("a failback does not deny producers", "trigger again with Deny producers switched off")
    return action


def _obstacle(document: FailoverDocument | TurnDocument) -> str:
    """The step that is blocked; of a failover what is not sealed, verified or moved."""
    from kafka_replication.reporting.turning import TurnDocument

    if isinstance(document, TurnDocument):
        found = [f"step {step.step}: {step.what}" for step in document.steps if step.state == "blocked"]
    else:
        rows = document.partitions
        found = [f"{row.source}: {row.error}" for row in rows if row.error]
        found += [f"{row.source}: {row.not_verified} offsets are not verified" for row in rows if row.not_verified]
        found += [f"group {row.group} is {row.state}: {row.why}" for row in document.groups if row.why]
    return "not done: " + ("; ".join(found) or "the log and the XCom say what")


def build_turn_dag(replication: Replication, folder: Path) -> DAG:
    params = {
        "action": text_field(
            "Action",
            "Cutover moves for good; its abort leads back, as long as nothing is sealed. Failover gives the source up;"
            " its undo opens the direction again, if nobody has written to the target. Failback goes back to the"
            " source. Abort and undo have no dry run.",
            *Turn,
        ),
        "dry_run": dry_run_field(True, task="turn"),
        "reason": text_field("Why", "The reason; the ledger keeps it."),
        "by": text_field("Who", "Who does it; the ledger keeps it. Empty means you, as Airflow knows you."),
        "back": text_field(
            "Other direction", "For a failback: the name of the replication that copies from the target to the source."
        ),
        "quiet": Param(
            None,
            type=["null", "number"],
            minimum=0.5,
            title="Quiet",
            description="Seconds for which nobody may write before the seal; empty means 10.",
        ),
        "audit": number_field(
            "Audit", 2**31 - 1, "Chunks of each partition to audit before the seal; -1: all; empty: none.", -1
        ),
        "deny_producers": switch_field(
            "Deny producers",
            "For a cutover: a rule (ACL) denies everybody but super users to write to the source's topics.",
        ),
        "surplus_aside": switch_field(
            "Surplus aside",
            "For a failback: copy what only the source has to topics of their own (.surplus), too.",
        ),
    }
    with by_hand(
        replication,
        TURN_SUFFIX,
        f"Cuts {replication.name} over, gives its source up, or goes back to it",
        "**Start with a dry run**, which is on in the form. Each action may be triggered again from any place: it looks"
        " anew. See docs/failover.md.",
        params,
        max_active_runs=1,
    ) as dag:
        TurnOperator(task_id="turn", replication=replication, folder=folder)
    return dag
