"""``make demo``: a real replication between two real clusters, run by real Airflow through real Spark, and shown."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console
from rich.table import Table

from stack import demo_data
from stack.airflow_api import FINISHED, AirflowApi
from stack.errors import StackError

DAG = "demo-orders"
FIRST, MORE = 300_000, 20_000
RUN_SECONDS = 1_800


def demo(console: Console, source: str, api: AirflowApi) -> None:
    """Produce, replicate, produce more, replicate again. Raises StackError unless every partition ends verified."""
    demo_data.create_topics(source)
    api.wait_for_dag(DAG)
    api.unpause(DAG)
    seed = int(time.time())  # another run of the demo brings other records
    console.print(f"producing {FIRST:,} records into {', '.join(demo_data.TOPICS)} on the source")
    produced = demo_data.produce(source, seed, FIRST)
    first = replicate(console, api)
    _check(first, produced, exactly=False)  # an earlier demo may have left records behind
    console.print(f"producing {MORE:,} more records, and replicating again: only those may be copied")
    produced = demo_data.produce(source, seed + 1, MORE)
    second = replicate(console, api)
    _check(second, produced, exactly=True)
    console.print(
        f"[green]ok[/green] the second run copied exactly the {produced:,} new records; every partition is verified"
    )


def replicate(console: Console, api: AirflowApi) -> dict[str, Any]:
    """Trigger the DAG over REST, follow its tasks, print its report; the report."""
    started = time.monotonic()
    run_id = api.trigger(DAG)
    console.print(f"triggered {DAG}: run {run_id}")
    _follow(console, api, run_id)
    report: dict[str, Any] = api.xcom(DAG, run_id, "report")
    _print(console, report)
    console.print(f"run ended as {report['outcome']} in {time.monotonic() - started:.0f} s")
    return report


def _follow(console: Console, api: AirflowApi, run_id: str) -> None:
    shown: dict[str, str] = {}
    deadline = time.monotonic() + RUN_SECONDS
    with console.status("waiting for the run ..."):
        while (state := api.run_state(DAG, run_id)) not in FINISHED:
            for task in api.task_instances(DAG, run_id):
                if task["state"] and shown.get(task["task_id"]) != task["state"]:
                    shown[task["task_id"]] = task["state"]
                    console.print(f"  {task['task_id']}: {task['state']}")
            if time.monotonic() > deadline:
                raise StackError(
                    f"run {run_id} is still {state} after {RUN_SECONDS} s", "look at its task logs in the UI"
                )
            time.sleep(0.5)
    if state != "success":
        failed = [task["task_id"] for task in api.task_instances(DAG, run_id) if task["state"] == "failed"]
        logs = "\n".join(api.logs(DAG, run_id, task)[-3000:] for task in failed[-2:])
        raise StackError(
            f"run {run_id} ended as {state} ({', '.join(failed)}):\n{logs}", "the task logs name the cause"
        )


def _print(console: Console, report: dict[str, Any]) -> None:
    columns = ("partition", "range", "span", "copied", "not visible", "digest", "watermark", "MB/s")
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for column in columns:
        table.add_column(column, overflow="fold")  # a narrow terminal may break a name, never cut it
    for each in report["ranges"]:
        seconds = each["seconds"]
        table.add_row(
            f"{each['topic']}-{each['partition']}",
            f"[{each['from']}, {each['until']})",
            *(str(number) for number in (each["until"] - each["from"], each["copied"], each["not_visible"])),
            {True: "equal", False: "DIFFERS", None: "-"}[each["digest_ok"]],
            str(each["watermark"]),
            f"{each['bytes'] / 1e6 / seconds:.1f}" if seconds else "-",
        )
    console.print(table)


def _check(report: dict[str, Any], produced: int, *, exactly: bool) -> None:
    ranges = report["ranges"]
    wrong = [f"{r['topic']}-{r['partition']}" for r in ranges if not r["digest_ok"] or r["watermark"] != r["until"]]
    copied = sum(r["copied"] for r in ranges)
    if report["outcome"] != "done" or wrong or copied < produced or (exactly and copied != produced):
        what = f"{copied} records copied where {produced} were produced; not verified: {wrong or 'none'}"
        raise StackError(what, "see the report above")
