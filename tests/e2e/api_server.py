"""Airflow's real API server with the page, and a browser that has logged in there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from kafka_replication.web import PREFIX
from stack.airflow_api import PatientClient
from stack.airflow_standalone import AirflowStandalone
from stack.ports import LOOPBACK, free_ports
from tests.e2e.airflow_home import REPOSITORY, Airflow
from tests.support.browser import Browser
from tests.support.waiting import wait_until

PASSWORD = "correct-horse"


@dataclass(frozen=True, slots=True)
class Server:
    """Airflow's API server on the store of the other tests."""

    url: str
    airflow: Airflow

    def token(self, user: str) -> str:
        login = {"username": user, "password": PASSWORD}
        with PatientClient(self.url) as client:
            return str(client.post("/auth/token", json=login).json()["access_token"])

    def as_user(self, user: str | None) -> httpx.Client:
        """What a browser of this user sends: the cookie of the login; of nobody, if the user is None."""
        cookies = {"_token": self.token(user)} if user else {}
        return PatientClient(self.url, cookies=cookies, timeout=60)

    def page(self, path: str, user: str | None = "admin") -> httpx.Response:
        with self.as_user(user) as client:
            return client.get(f"{PREFIX}/{path}", follow_redirects=True)


@contextmanager
def serving(airflow: Airflow, folder: Path, users: Mapping[str, str]) -> Iterator[Server]:
    """An API server that knows the DAGs as they are now, and these users with their roles."""
    passwords = folder / "passwords.json"
    passwords.write_text(json.dumps(dict.fromkeys(users, PASSWORD)))
    [port] = free_ports(1)
    url = f"http://{LOOPBACK}:{port}"
    environment = airflow.environment | {
        "AIRFLOW__CORE__AUTH_MANAGER": "tests.e2e.auth_of_one_dag.AuthOfOneDag",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(f"{name}:{role}" for name, role in users.items()),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords),
        "AIRFLOW__API__BASE_URL": url,
        "PYTHONPATH": os.pathsep.join([airflow.environment["PYTHONPATH"], str(REPOSITORY)]),
    }
    code, said = airflow.airflow("dags", "reserialize")
    assert code == 0, said[-5000:]
    with (folder / "api-server.log").open("w") as log:
        listening = ["--host", LOOPBACK, "--port", str(port), "--workers", "1"]
        command = [sys.executable, "-m", "airflow", "api-server", *listening]
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        wait_until(lambda: _is_healthy(url) or process.poll() is not None)
        assert process.poll() is None, (folder / "api-server.log").read_text()[-3000:]
        yield Server(url, airflow)
    finally:
        process.terminate()
        process.wait()


def _is_healthy(url: str) -> bool:
    try:
        return httpx.get(f"{url}/api/v2/monitor/health", trust_env=False).is_success
    except httpx.HTTPError:
        return False


def log_in(window: Browser, server: Server, user: str) -> None:
    log_in_with(window, server.url, server.token(user))


def log_in_with(window: Browser, url: str, token: str) -> None:
    """As the login page of Airflow leaves the browser."""
    window.open(f"{url}/auth/login")
    window.do("POST", "cookie", {"cookie": {"name": "_token", "value": token, "path": "/"}})


def open_page(window: Browser, server: Server | AirflowStandalone, path: str = "") -> None:
    """The page in its frame in Airflow's own page, as a person opens it there. That one stays if it is there: each load of it
    takes 4 s of a processor.
    """
    window.leave()
    if not (stays := window.url.startswith(f"{server.url}/plugin/replications")):
        window.open(f"{server.url}/plugin/replications{PREFIX}/{path}" if path else f"{server.url}/plugin/replications")
    window.enter("iframe")
    if stays:
        window.run("location.assign(arguments[0])", f"{PREFIX}/{path}")
