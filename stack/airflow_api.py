"""The part of Airflow's REST interface (``/api/v2``) that the demo and the tests use.

Its SQLite has one writer at a time: on a busy machine Airflow answers what was right with a 5xx, or late, or not at
all.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

import httpx
import tenacity

from stack.errors import StackError

FINISHED = frozenset({"success", "failed"})
PATIENCE = 180.0  # seconds
BUSY = "nothing is wrong with the request: see Airflow's log (make status names it), then run the same command again"


class PatientClient(httpx.Client):
    """Sends a request again for ``patience`` seconds while the server answers with a 5xx, late, or not at all. The
    caller's requests have to be safe to repeat.
    """

    def __init__(self, base_url: str, patience: float = PATIENCE, **options: Any) -> None:
        super().__init__(base_url=base_url, trust_env=False, **options)
        self._again = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(httpx.TransportError)
            | tenacity.retry_if_result(lambda answer: answer.is_server_error),
            stop=tenacity.stop_after_delay(patience),
            wait=tenacity.wait_exponential(multiplier=0.25, max=5),
            retry_error_callback=lambda state: state.outcome and state.outcome.result(),  # the last answer, or error
        )

    def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        answer: httpx.Response = self._again(super().send, request, **options)
        return answer


class Answered(StackError):
    """Airflow answers with an error. ``status`` is that of HTTP."""

    def __init__(self, what: str, status: int) -> None:
        super().__init__(what, BUSY if status >= 500 else "correct the request")
        self.status = status


class AirflowApi:
    """One user's session. Closes its connections as a context manager.

    Raises StackError when Airflow cannot be reached for ``patience`` seconds, and `Answered`, with what it said, for
    every answer that is not a success.
    """

    def __init__(self, url: str, user: str, password: str, patience: float = PATIENCE, timeout: float = 30) -> None:
        self._user, self._password, self._patience = user, password, patience
        self._token: str | None = None
        self._http = PatientClient(url, patience, timeout=timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def health(self) -> dict[str, str]:
        """The state of each component (``healthy``, ``unhealthy``), by name; needs no login."""
        answer = self._send("GET", "/api/v2/monitor/health", authorised=False)
        return {name: str(each.get("status") or "unknown") for name, each in answer.json().items() if each}

    def token(self) -> str:
        """An access token of this user, for the header ``Authorization: Bearer``."""
        if self._token is None:
            login = {"username": self._user, "password": self._password}
            self._token = str(self._send("POST", "/auth/token", json=login, authorised=False).json()["access_token"])
        return self._token

    def get(self, path: str, **params: Any) -> Any:
        """The JSON document at a path below ``/api/v2``."""
        return self._send("GET", f"/api/v2/{path}", params=params).json()

    def dags(self) -> list[dict[str, Any]]:
        return list(self.get("dags", limit=1000)["dags"])

    def import_errors(self) -> list[dict[str, Any]]:
        return list(self.get("importErrors")["import_errors"])

    def wait_for_dag(self, dag_id: str, seconds: float = 300) -> dict[str, Any]:
        """The DAG, once Airflow has parsed its file."""
        deadline = time.monotonic() + seconds
        while True:
            found = [dag for dag in self.dags() if dag["dag_id"] == dag_id]
            if found:
                return found[0]
            if time.monotonic() > deadline:
                errors = "; ".join(str(each["stack_trace"]) for each in self.import_errors()) or "no import errors"
                raise StackError(
                    f"Airflow shows no DAG {dag_id} after {seconds:.0f} s: {errors}", "look at the DAG processor's log"
                )
            time.sleep(0.5)

    def unpause(self, dag_id: str) -> None:
        """Airflow runs nothing of a paused DAG, not even what was triggered; new DAGs start paused."""
        self._send("PATCH", f"/api/v2/dags/{dag_id}", json={"is_paused": False})

    def trigger(self, dag_id: str, conf: Mapping[str, Any] | None = None) -> str:
        """Start a run now; returns its run id, by which a request that is sent again is known as the same."""
        now = datetime.now(UTC).isoformat()
        run_id = f"manual__{now}"
        body = {"dag_run_id": run_id, "logical_date": now, "conf": dict(conf or {})}
        try:
            self._send("POST", f"/api/v2/dags/{dag_id}/dagRuns", json=body)
        except Answered as answer:
            if answer.status != 409:
                raise
            self.run_state(dag_id, run_id)  # it exists: the answer to an earlier try was lost
        return run_id

    def run_state(self, dag_id: str, run_id: str) -> str:
        """``queued``, ``running``, ``success`` or ``failed``."""
        return str(self.get(f"dags/{dag_id}/dagRuns/{run_id}")["state"])

    def wait_for_run(self, dag_id: str, run_id: str, seconds: float = 300) -> str:
        """The state in which a run ended."""
        deadline = time.monotonic() + seconds
        while (state := self.run_state(dag_id, run_id)) not in FINISHED:
            if time.monotonic() > deadline:
                tasks = ", ".join(f"{task['task_id']}: {task['state']}" for task in self.task_instances(dag_id, run_id))
                raise StackError(
                    f"run {run_id} of {dag_id} is still {state} after {seconds:.0f} s ({tasks})", "see its task logs"
                )
            time.sleep(0.5)
        return state

    def task_instances(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        return list(self.get(f"dags/{dag_id}/dagRuns/{run_id}/taskInstances")["task_instances"])

    def set_task_state(self, dag_id: str, run_id: str, task_id: str, state: str) -> None:
        """What the UI's "mark as" does; a task that is running is stopped."""
        self._send(
            "PATCH", f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}", json={"new_state": state}
        )

    def set_run_state(self, dag_id: str, run_id: str, state: str) -> None:
        """What the UI's "mark as" does to a whole run."""
        self._send("PATCH", f"/api/v2/dags/{dag_id}/dagRuns/{run_id}", json={"state": state})

    def clear(self, dag_id: str, run_id: str, task_id: str) -> None:
        """Run a task of a run again, and all tasks downstream of it."""
        body = {
            "dry_run": False,
            "dag_run_id": run_id,
            "task_ids": [task_id],
            "include_downstream": True,
            "only_failed": False,
        }
        self._send("POST", f"/api/v2/dags/{dag_id}/clearTaskInstances", json=body | {"reset_dag_runs": True})

    def logs(self, dag_id: str, run_id: str, task_id: str, try_number: int = 1, map_index: int = -1) -> str:
        """One try's log, a line for each message."""
        path = f"dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/logs/{try_number}"
        content = self.get(path, map_index=map_index, full_content=True)["content"]
        return "\n".join(each if isinstance(each, str) else _log_line(each) for each in content)

    def xcom(self, dag_id: str, run_id: str, task_id: str, key: str = "return_value") -> Any:
        """The value that a task handed on."""
        return self.get(f"dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/xcomEntries/{key}")["value"]

    def _send(self, method: str, path: str, authorised: bool = True, **options: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.token()}"} if authorised else {}
        try:
            answer = self._http.request(method, path, headers=headers, **options)
        except httpx.HTTPError as error:
            what = f"Airflow does not answer {method} {path} within {self._patience:.0f} s: {error!r}"
            raise StackError(what, BUSY) from error
        if not answer.is_success:
            what = f"Airflow answers {method} {path} with {answer.status_code}: {answer.text[:2000]}"
            raise Answered(what, answer.status_code)
        return answer


def _log_line(message: Mapping[str, Any]) -> str:
    level = str(message.get("level") or "").upper()
    details = "\n".join(
        f"{each.get('exc_type')}: {each.get('exc_value')}" for each in message.get("error_detail") or ()
    )
    return " ".join(filter(None, [str(message.get("timestamp") or ""), level, str(message["event"])])) + (
        f"\n{details}" if details else ""
    )
