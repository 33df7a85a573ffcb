"""DAGs of the test. Their jobs wait for a gate, print a line, and end."""

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG
from berth.airflow import BerthJobOperator

IMAGE = os.environ["BERTH_IMAGE"]
GATE_WAIT = os.environ["GATE_WAIT"]


def write_pid(_: Any) -> None:
    """Names the task's process, so that the test can kill it."""
    Path(os.environ["AIRFLOW_HOME"], "task.pid").write_text(str(os.getpid()))


def script(text: str) -> dict[str, Any]:
    return {"image": IMAGE, "command": ["sh", "-c", text], "timeout": "10m"}


with DAG("fails", schedule=None):
    BerthJobOperator(task_id="fails", **script("echo out of luck; exit 3"))
with DAG("rejected", schedule=None):
    rejected = {"fields": {"region": ["nowhere", ""]}, "retries": 3, "retry_delay": timedelta(0)}
    BerthJobOperator(task_id="rejected", **script("true"), **rejected)
with DAG("stopped", schedule=None):
    BerthJobOperator(task_id="stopped", **script(GATE_WAIT))
with DAG("stopped_here", schedule=None):
    BerthJobOperator(task_id="stopped_here", **script(f"echo before; {GATE_WAIT}"), deferrable=False)
with DAG("overdue", schedule=None):
    # Airflow's scheduler fails a task that is queued again while the executor still reports its deferral, up to 5 s later.
    BerthJobOperator(task_id="overdue", **script(GATE_WAIT), execution_timeout=timedelta(seconds=15))
with DAG("killed", schedule=None):
    BerthJobOperator(
        task_id="killed",
        **script(f"echo before; {GATE_WAIT}; echo after"),
        deferrable=False,
        pre_execute=write_pid,
        retries=1,
        retry_delay=timedelta(0),
    )
