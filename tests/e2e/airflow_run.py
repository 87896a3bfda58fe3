"""Run by the tests in a process of its own, with its own AIRFLOW_HOME: ``DAG_FILE DAG_ID CONF TASK_ID`` -> one JSON line, the last."""

from __future__ import annotations

import json
import runpy
import sys

from airflow.dag_processing.bundles.manager import DagBundlesManager


def main(dag_file: str, dag_id: str, conf: str, task_id: str) -> None:
    DagBundlesManager().sync_bundles_to_db()  # type: ignore[no-untyped-call]
    run = runpy.run_path(dag_file)[dag_id].test(run_conf=json.loads(conf))
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session

    with create_session() as session:
        found = session.scalars(XComModel.get_many(key="return_value", run_id=run.run_id, dag_ids=dag_id, task_ids=task_id)).first()
        report = XComModel.deserialize_value(found) if found else None
    tasks = {each.task_id: str(each.state) for each in run.get_task_instances()}
    print(json.dumps({"state": str(run.state), "tasks": tasks, "report": report}))


if __name__ == "__main__":
    main(*sys.argv[1:5])
