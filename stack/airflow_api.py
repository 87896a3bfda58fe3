"""The part of Airflow's REST interface (``/api/v2``) that the demo and the tests use."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

import httpx

from stack.errors import StackError

FINISHED = frozenset({"success", "failed"})


class AirflowApi:
    """One user's session. Closes its connections as a context manager.

    Raises StackError for every answer that is not a success, with what Airflow said, and when Airflow cannot be
    reached.
    """

    def __init__(self, url: str, user: str, password: str, timeout: float = 30) -> None:
        self._user, self._password = user, password
        self._token: str | None = None
        self._http = httpx.Client(base_url=url, timeout=timeout, trust_env=False)

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

    def wait_for_dag(self, dag_id: str, seconds: float = 90) -> dict[str, Any]:
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
        """Start a run now; returns its run id."""
        body = {"logical_date": datetime.now(UTC).isoformat(), "conf": dict(conf or {})}
        return str(self._send("POST", f"/api/v2/dags/{dag_id}/dagRuns", json=body).json()["dag_run_id"])

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
            raise StackError(
                f"Airflow does not answer {method} {path}: {error}", "see python -m stack status"
            ) from error
        if not answer.is_success:
            raise StackError(
                f"Airflow answers {method} {path} with {answer.status_code}: {answer.text[:2000]}",
                "correct the request",
            )
        return answer


def _log_line(message: Mapping[str, Any]) -> str:
    level = str(message.get("level") or "").upper()
    details = "\n".join(
        f"{each.get('exc_type')}: {each.get('exc_value')}" for each in message.get("error_detail") or ()
    )
    return " ".join(filter(None, [str(message.get("timestamp") or ""), level, str(message["event"])])) + (
        f"\n{details}" if details else ""
    )
