"""Run by the tests in a process of its own, with its own AIRFLOW_HOME: ``DAG_FILE DAG_ID CONF [LOGICAL_DATE]`` -> one JSON line, the last."""

from __future__ import annotations

import json
import runpy
import sys
from datetime import datetime

from airflow.dag_processing.bundles.manager import DagBundlesManager


def main(dag_file: str, dag_id: str, conf: str, logical_date: str = "") -> None:
    DagBundlesManager().sync_bundles_to_db()  # type: ignore[no-untyped-call]
    when = {"logical_date": datetime.fromisoformat(logical_date)} if logical_date else {}
    run = runpy.run_path(dag_file)[dag_id].test(run_conf=json.loads(conf), **when)
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session

    returned = {}
    with create_session() as session:
        for name in ("plan", "report", "audit"):
            found = session.scalars(
                XComModel.get_many(key="return_value", run_id=run.run_id, dag_ids=dag_id, task_ids=name)
            ).first()
            returned[name] = XComModel.deserialize_value(found) if found else None
    tasks = {each.task_id: str(each.state) for each in run.get_task_instances()}
    print(json.dumps({"state": str(run.state), "tasks": tasks, **returned}))


if __name__ == "__main__":
    main(*sys.argv[1:5])
