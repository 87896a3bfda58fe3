"""Serves the pages of `kafka_replication.web` inside Airflow's API server.

Airflow does not ask who calls the app of a plugin. So every page here asks Airflow who it is (401), and which DAGs this
person may see (403). Nothing here changes anything: an action is a request of the browser to Airflow's own interface.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import GetUserDep
from airflow.models.dag import DagModel
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from fastapi import Depends, FastAPI, HTTPException, Query, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException as StarletteHTTPException

from kafka_replication.config import names
from kafka_replication.model.errors import BadInput, ReplicationError
from kafka_replication.model.offsets import PartitionKey, TopicPartition
from kafka_replication.model.times import EPOCH
from kafka_replication.orchestration.connections import store
from kafka_replication.runtime import extras
from kafka_replication.web import PREFIX, pages
from kafka_replication.web.actions import Site, dag_run_of, replication_of, store_run_id
from kafka_replication.web.pages import Reader, Step

if TYPE_CHECKING:
    from kafka_replication.store import WatermarkStore

log = logging.getLogger(__name__)
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none';"
    " form-action 'self'; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
CERTIFICATE: Final = {"json": "application/json", "html": "text/html; charset=utf-8"}
MOST: Final = 200  # characters of a search
Q = Annotated[str, Query(max_length=MOST)]
Page = Annotated[int, Query(ge=1, le=1_000_000)]
Before = Annotated[int | None, Query(ge=0)]


@dataclass(frozen=True, slots=True)
class Person:
    """Whoever Airflow says it is, with the DAGs that this person may see."""

    user: Any
    readable: frozenset[str]

    def check(self, name: str) -> str:
        """The name of a replication whose DAG this person may see. Raises HTTPException (403) for any other."""
        if name not in self.readable:
            raise HTTPException(403, f"You may not see {name}, or Airflow has no DAG of this name.")
        return name

    def may(self, dag_id: str, method: Literal["GET", "POST"], what: DagAccessEntity) -> bool:
        """True if this person may do this to what belongs to the DAG."""
        return dag_id in self.readable and bool(
            get_auth_manager().is_authorized_dag(
                method=method,
                access_entity=what,
                details=DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id)),
                user=self.user,
            )
        )


def person(user: GetUserDep) -> Person:
    """Raises HTTPException (401) for somebody who has not logged in."""
    return Person(user, frozenset(get_auth_manager().get_authorized_dag_ids(user=user, method="GET")))


Who = Annotated[Person, Depends(person)]


def site(request: Request) -> Site:
    base = str(request.scope.get("root_path", PREFIX)).rstrip("/")
    return Site(base, base.removesuffix(PREFIX))


At = Annotated[Site, Depends(site)]


@cache
def _store() -> WatermarkStore:
    """Holds no connection between two calls."""
    return store()


def reader(at: At) -> Reader:
    return Reader(store=_store(), site=at, now=datetime.now(UTC))


Read = Annotated[Reader, Depends(reader)]


def actor(name: str, who: Who, at: At) -> Reader:
    """A reader of one replication, with what this person may start. Raises HTTPException (403)."""
    dag_ids = [who.check(name), *(f"{name}{suffix}" for suffix in names.DAG_SUFFIXES)]
    allowed = frozenset(dag_id for dag_id in dag_ids if who.may(dag_id, "POST", DagAccessEntity.RUN))
    with create_session() as session:
        paused = frozenset(dag_id for dag_id in allowed if (dag := session.get(DagModel, dag_id)) and dag.is_paused)
    return Reader(store=_store(), site=at, now=datetime.now(UTC), allowed=allowed, off=paused)


Act = Annotated[Reader, Depends(actor)]


def front(request: Request, who: Who, read: Read, q: Q = "", page: Page = 1) -> str:
    part = request.headers.get("HX-Request") == "true" and "HX-History-Restore-Request" not in request.headers
    return pages.front(read, who.readable.__contains__, q, page, part=part)


def replication(name: str, act: Act, period: Q = "day", q: Q = "", partitions: Page = 1, before: Before = None) -> str:
    return pages.replication(act, name, period=period, q=q, page=partitions, before=before)


def live(name: str, who: Who, read: Read) -> str:
    return pages.live(read, who.check(name))


def partitions(name: str, who: Who, read: Read, q: Q = "", page: Page = 1) -> str:
    return pages.partitions(read, who.check(name), q, page)


def runs(name: str, who: Who, read: Read, before: Before = None) -> str:
    return pages.runs(read, who.check(name), before)


def partition(name: str, act: Act, topic: Q, partition: Annotated[int, Query(ge=0)], target: Q) -> str:
    return pages.partition(act, PartitionKey(name, TopicPartition(topic, partition), target))


def run(name: str, who: Who, read: Read, run_id: Annotated[str, Query(max_length=1000)]) -> str:
    return pages.run(read, who.check(name), run_id, _steps(who, name, run_id))


def certificate(name: str, file: str, who: Who, read: Read) -> Response:
    """One of both files of a certificate, byte by byte as it was signed."""
    stem, _, kind = file.rpartition(".")
    if kind not in CERTIFICATE:
        raise HTTPException(404, "A certificate has a .json and a .html file.")
    content = read.store.certificate_file(who.check(name), stem, kind)
    # Its page has its style in itself, no script, and nothing from elsewhere.
    policy = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'"}
    return Response(content, media_type=CERTIFICATE[kind], headers=policy)


def _steps(who: Person, name: str, run_id: str) -> list[Step]:
    """The tasks of the DAG run in their order, if there is one and this person may see its tasks."""
    dag_run = dag_run_of(name, run_id)
    if dag_run is None or not who.may(dag_run[0], "GET", DagAccessEntity.TASK_INSTANCE):
        return []
    with create_session() as session:
        tasks = session.query(TaskInstance).filter_by(dag_id=dag_run[0], run_id=dag_run[1]).all()
        steps = [
            Step(
                name=task.task_id,
                state=str(task.state or "waiting"),
                tries=task.try_number,
                began_at=task.start_date,
                seconds=task.duration,
            )
            for task in tasks
        ]
    return sorted(steps, key=lambda step: (step.began_at is None, step.began_at or EPOCH, step.name))


def metrics(who: Who, by_topic: bool = False) -> Response:
    """The metrics of the replications that this person may see, for Prometheus.

    Raises HTTPException: 403 for somebody who may see no DAG at all, 501 without the package that they need.
    """
    if not who.readable:
        raise HTTPException(403, "You may not see any DAG.")
    try:
        from kafka_replication.overview.metrics import CONTENT_TYPE, Collector, exposition
    except ModuleNotFoundError as missing:
        remedy = extras.install("prometheus_client")
        raise HTTPException(501, f"A package is not installed here ({missing}): {remedy}.") from missing
    return Response(exposition(Collector(store, by_topic, who.readable)), media_type=CONTENT_TYPE)


PAGES: Final[dict[str, Callable[..., str]]] = {
    "/": front,
    "/replications/{name}": replication,
    "/replications/{name}/live": live,
    "/replications/{name}/partitions": partitions,
    "/replications/{name}/runs": runs,
    "/replications/{name}/partition": partition,
    "/replications/{name}/run": run,
}


def tab_of_dag(dag_id: str, who: Who, at: At) -> RedirectResponse:
    """The tab of a DAG: the page of its replication."""
    return RedirectResponse(at.replication(who.check(replication_of(dag_id))))


def tab_of_run(dag_id: str, dag_run_id: str, who: Who, read: Read, at: At) -> RedirectResponse:
    """The tab of a DAG run: the page of its run; that of the replication while it has no plan."""
    name, run_id = who.check(replication_of(dag_id)), store_run_id(dag_id, dag_run_id)
    known = read.store.run(run_id)
    return RedirectResponse(at.ranges(name, run_id) if known else at.replication(name))


async def _with_headers(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    answer = await call_next(request)
    for name, value in HEADERS.items():
        if name != "Cache-Control" or "/static/" not in request.url.path:
            answer.headers.setdefault(name, value)
    return answer


def _refused(request: Request, error: Exception) -> Response:
    """401, 403 and 404 as pages for people."""
    assert isinstance(error, StarletteHTTPException)
    remedies = {
        401: "Log in to Airflow, then open this page again.",
        403: "Ask whoever gives rights in Airflow for the right to read the DAG.",
    }
    text = pages.problem(site(request), error.status_code, str(error.detail), remedies.get(error.status_code, ""))
    return HTMLResponse(text, error.status_code, headers=error.headers)


def _failed(request: Request, error: Exception) -> Response:
    """Answer 404 for a thing that the store does not know, and 503 if the store does not answer."""
    assert isinstance(error, ReplicationError)
    status = 404 if isinstance(error, BadInput) else 503
    if status == 503:
        log.warning("a page could not be shown: %s", error)
    return HTMLResponse(pages.problem(site(request), status, error.what, error.remedy), status)


@cache
def app() -> FastAPI:
    """The app, made when Airflow's API server gets its first request for a page."""
    made = FastAPI(title="Kafka replication", docs_url=None, redoc_url=None, openapi_url=None)
    for path, page in PAGES.items():
        made.add_api_route(path, page, response_class=HTMLResponse)
    made.add_api_route("/replications/{name}/certificates/{file}", certificate)
    made.add_api_route("/metrics", metrics)
    made.add_api_route("/of/{dag_id}", tab_of_dag)
    made.add_api_route("/of/{dag_id}/{dag_run_id}", tab_of_run)
    made.mount("/static", StaticFiles(directory=pages.STATIC))  # no data, so that nobody has to log in for it
    made.middleware("http")(_with_headers)
    made.add_exception_handler(StarletteHTTPException, _refused)
    made.add_exception_handler(ReplicationError, _failed)
    return made
