"""The watcher (`runs.watch`) inside an Airflow task: Airflow's connections, notifiers and knowledge of DAG runs.

Airflow's notifiers as channels of alerts.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import closing, redirect_stdout
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk.configuration import conf
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import GetPreviousDagRun, PreviousDagRunResult

from kafka_replication.alerting.telling import Links, Message
from kafka_replication.config import Replication
from kafka_replication.model.errors import BadInput, NotDelivered
from kafka_replication.orchestration.connections import AirflowConnections, store
from kafka_replication.runs.watching import SENDING, FailedRun, Orchestrator, Watcher
from kafka_replication.runtime import extras
from kafka_replication.web import PREFIX, ROUTE
from kafka_replication.web.actions import Site, dag_run_of, store_run_id

if TYPE_CHECKING:
    from airflow.sdk import BaseNotifier, Context


TEXT, TITLE, FIELDS = "alert", "alert_title", "alert_fields"  # in a notifier's templates
# The names that notifiers use for the parts of a message. Parts that the file does not give are filled in.
_TITLES = ("subject", "title", "summary")
_TEXTS = ("text", "message", "body", "content", "description")
_HTML = "html_content"
_LOADING = threading.Lock()


@dataclass(frozen=True, slots=True)
class NotifierChannel:
    """One notifier of a replication file. ``context`` is that of the task that sends the alert."""

    path: str
    arguments: Mapping[str, Any] = field(repr=False)
    context: Mapping[str, Any] = field(repr=False)

    @property
    def name(self) -> str:
        return f"notifier {self.path}"

    def deliver(self, message: Message) -> None:
        try:
            notifier = self.made()
            fields = [asdict(alert) for alert in message.alerts]
            context: Any = {**self.context, TEXT: message.text, TITLE: message.title, FIELDS: fields}
            # The action of a notifier without its own error handling, which would hide the errors.
            notifier._update_context(context)
            notifier.render_template_fields(context)
            notifier.notify(context)
        except BadInput:
            raise
        except Exception as problem:
            raise NotDelivered(
                f"{type(problem).__name__}: {problem}", "check the notifier's arguments and its connection"
            ) from problem

    def made(self) -> BaseNotifier:
        """The notifier. Raises BadInput without Airflow, without such a class, or if it does not take the arguments."""
        try:
            base = _base_notifier()
        except ModuleNotFoundError as missing:
            raise BadInput(
                f"{self.path} needs Airflow, and this Python has none ({missing})",
                f"{extras.install('airflow')}; or use alerts.apprise, which needs none",
            ) from missing
        module, _, name = self.path.rpartition(".")
        try:
            kind = getattr(importlib.import_module(module), name)
        except Exception as missing:  # a module that is imported may raise anything
            raise BadInput(
                f"{self.path} cannot be imported: {missing}", "correct alerts.notifiers, or install what it needs"
            ) from missing
        if not (isinstance(kind, type) and issubclass(kind, base)):
            raise BadInput(f"{self.path} is no Airflow notifier", "name a class that derives from BaseNotifier")
        try:
            return kind(**completed(kind, self.arguments))
        except TypeError as wrong:
            raise BadInput(f"{self.path} does not take its arguments: {wrong}", "correct alerts.notifiers") from wrong


def _base_notifier() -> type[BaseNotifier]:
    """Airflow's class. Airflow takes over the logging of a process that imports it, and logs to stdout. A command keeps
    its own handlers, and its stdout for documents.
    """
    with _LOADING:
        if "airflow" not in sys.modules:
            root = logging.getLogger()
            handlers, level = root.handlers[:], root.level
            with redirect_stdout(sys.stderr):
                from airflow.sdk.log import configure_logging

                configure_logging(output=sys.stderr)
            root.handlers[:] = handlers
            root.setLevel(level)
        from airflow.sdk import BaseNotifier

        return BaseNotifier


def completed(kind: type[BaseNotifier], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments, with the alert for the parts of a message that they do not name."""
    known = inspect.signature(kind.__init__).parameters
    filled = {name: f"{{{{ {TITLE} }}}}" for name in _TITLES if name in known}
    filled |= {name: f"{{{{ {TEXT} }}}}" for name in _TEXTS if name in known}
    if _HTML in known:
        filled[_HTML] = f"<pre>{{{{ {TEXT} | e }}}}</pre>"
    return {**filled, **arguments}


def channels(replication: Replication, context: Mapping[str, Any]) -> Sequence[NotifierChannel]:
    """The notifiers of the replication, in the file's order."""
    return [NotifierChannel(entry.class_, entry.arguments, context) for entry in replication.alerts.notifiers]


log = logging.getLogger(__name__)


def airflow_of(replication: Replication) -> Orchestrator:
    """The view that Airflow has of the runs of a replication. Asks through the task's supervisor."""
    name = replication.name

    def state(run_id: str) -> str | None:
        if (dag_run := dag_run_of(name, run_id)) is None:
            return None
        try:
            state = task_runner.RuntimeTaskInstance.get_dagrun_state(*dag_run)
            return str(getattr(state, "value", state))  # an enum whose text is not its value
        except Exception as problem:  # noqa: BLE001 - the DAG run was deleted, or Airflow does not answer
            log.info("Airflow does not know run %s: %s", run_id, problem)
            return None

    def newest_failed() -> FailedRun | None:
        try:
            answer = task_runner.SUPERVISOR_COMMS.send(GetPreviousDagRun(dag_id=name, logical_date=datetime.now(UTC)))
            run = answer.dag_run if isinstance(answer, PreviousDagRunResult) else None
        except Exception as problem:  # noqa: BLE001 - Airflow does not answer
            log.info("Airflow does not know the latest run of %s: %s", name, problem)
            return None
        if run is None or run.state != "failed" or run.end_date is None:
            return None
        began = run.start_date or run.run_after
        return FailedRun(run_id=store_run_id(name, run.run_id), began_at=began, ended_at=run.end_date)

    def paused() -> bool:
        try:
            return task_runner.RuntimeTaskInstance.get_dag(name).is_paused
        except Exception as problem:  # noqa: BLE001 - the DAG is not parsed yet, or Airflow does not answer
            log.info("Airflow does not know the DAG %s: %s", name, problem)
            return False

    links = Links()
    if base := conf.get("api", "base_url", fallback="").rstrip("/"):
        site = Site(f"{base}/plugin/{ROUTE}{PREFIX}", base)
        links = Links(lambda run_id: site.run(name, run_id) or site.dag(name), site.replication(name))
    return Orchestrator(state=state, paused=paused, newest_failed=newest_failed, links=links)


def watcher(replication: Replication, context: Mapping[str, Any], seconds: float = SENDING) -> Watcher:
    return Watcher(
        replication=replication,
        connections=AirflowConnections(),
        open_store=store,
        orchestrator=airflow_of(replication),
        more=channels(replication, context),
        budget=seconds,
    )


def look(replication: Replication, context: Context) -> None:
    """Look at a replication after a run of it has ended, if a cause is open."""
    with closing(store()) as opened:
        causes = opened.open_causes(replication.name)
    if causes:
        watcher(replication, dict(context)).look()
