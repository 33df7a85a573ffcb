"""Operator, trigger and hook of Apache Airflow: a task runs a job."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from functools import cached_property
from typing import Any

from airflow.sdk import BaseHook, BaseOperator, BaseOperatorLink, Connection
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowFailException, AirflowTaskTimeout
from airflow.sdk.execution_time.xcom import XCom
from airflow.triggers.base import BaseTrigger, TriggerEvent

from . import aio
from ._errors import ApiError, BadRequest, Conflict, Error, JobCancelled, JobFailed, WaitTimeout
from ._job_fields import Workdir
from ._sync._client import Client
from ._sync._job import Job

__all__ = ["BerthHook", "BerthJobLink", "BerthJobOperator", "BerthJobTrigger"]

#: Longest outage of the API that a trigger waits for, seconds.
_OUTAGE_SECONDS = 3600
#: XCom with the address of the job's page.
_URL_XCOM = "job_url"


class BerthHook(BaseHook):
    """
    Client of an Airflow connection: its host is the URL of Berth, its password a key, and `project` in its extra the
    project.
    """

    conn_name_attr = "conn_id"
    default_conn_name = "berth_default"
    conn_type = "berth"
    hook_name = "Berth"

    def __init__(self, conn_id: str = default_conn_name) -> None:
        super().__init__()
        self.conn_id = conn_id

    @cached_property
    def _arguments(self) -> dict[str, Any]:
        return _client_arguments(self.get_connection(self.conn_id))

    def get_conn(self) -> Client:
        """Returns a new client. Raises ValueError if the connection lacks the host or the password."""
        return Client(**self._arguments)

    async def get_async_conn(self) -> aio.Client:
        """Returns a new client for asyncio, which waits through outages. Raises as `get_conn`."""
        arguments = _client_arguments(await self.aget_connection(self.conn_id))
        return aio.Client(**arguments, patience=_OUTAGE_SECONDS, outage=_OUTAGE_SECONDS)

    def test_connection(self) -> tuple[bool, str]:
        """Returns true if the key can list jobs, and a sentence."""
        try:
            with self.get_conn() as client:
                next(iter(client.jobs(limit=1)), None)
        except (Error, ValueError) as error:
            return False, str(error)
        return True, "Berth accepts the key."


def _client_arguments(connection: Connection) -> dict[str, Any]:
    """Returns the arguments of a client."""
    for field, meaning in (("host", "the URL of Berth"), ("password", "an API key of Berth")):
        if not getattr(connection, field):
            raise ValueError(f"The Airflow connection {connection.conn_id} has no {field}: set it to {meaning}.")
    url = str(connection.host)
    if "://" not in url:
        port = f":{connection.port}" if connection.port else ""
        url = f"{connection.schema or 'https'}://{url}{port}"
    return {
        "url": url,
        "api_key": connection.password,
        "project": connection.extra_dejson.get("project") or None,
    }


class BerthJobLink(BaseOperatorLink):
    """Link from a task to its job's page in the web console."""

    name = "Job on Berth"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """Returns the address; empty if the task has no job yet."""
        return XCom.get_value(ti_key=ti_key, key=_URL_XCOM) or ""


class BerthJobOperator(BaseOperator):
    """
    Runs a job, and succeeds if the job does. The arguments are those of `berth.run`; `fields` has further fields of a job,
    such as `{"max_cost_usd": 3}`.

    One try of a task submits at most one job. A try that finds the job of an earlier try unfinished continues with it: the
    worker of that try was lost. The task returns the job's id; the XComs `status`, `exit_code` and `cost` follow at the
    end.
    """

    template_fields: Sequence[str] = ("image", "command", "env")
    operator_extra_links = (BerthJobLink(),)

    def __init__(
        self,
        *,
        image: str,
        command: str | Sequence[str] | None = None,
        name: str | None = None,
        gpu: str | Mapping[str, Any] | None = None,
        cpu: float | None = None,
        memory: str | None = None,
        disk: str | None = None,
        env: Mapping[str, object] | None = None,
        secret_env: Mapping[str, str | Mapping[str, str]] | None = None,
        workdir: Workdir = None,
        volumes: Mapping[str, Mapping[str, Any]] | None = None,
        timeout: str | float | timedelta | None = None,
        fields: Mapping[str, Any] | None = None,
        conn_id: str = BerthHook.default_conn_name,
        deferrable: bool = True,
        cancel_on_kill: bool = True,
        **kwargs: Any,
    ) -> None:
        """
        `deferrable`: a triggerer waits, and no worker. `cancel_on_kill`: a task that a person ends, or whose
        `execution_timeout` is over, cancels its job.
        """
        super().__init__(**kwargs)
        self.image, self.command, self.env = image, command, env
        self.name, self.gpu, self.cpu, self.memory, self.disk = name, gpu, cpu, memory, disk
        self.secret_env, self.workdir, self.volumes, self.timeout = secret_env, workdir, volumes, timeout
        self.fields = fields
        self.conn_id = conn_id
        self.deferrable = deferrable
        self.cancel_on_kill = cancel_on_kill
        self._job_id: str | None = None
        self._is_killed = False

    @cached_property
    def hook(self) -> BerthHook:
        """Hook of the connection."""
        return BerthHook(self.conn_id)

    def execute(self, context: Any) -> str:
        """Submits the job, and waits for its end, here or in a triggerer. Returns its id."""
        began = time.time()
        with self.hook.get_conn() as client:
            job = self._unfinished_job(client, context) or self._submit(client, context)
            self._job_id = job.id
            if self._is_killed:
                self.on_kill()
            context["ti"].xcom_push("job_id", job.id)
            context["ti"].xcom_push(_URL_XCOM, job.url)
            if not self.deferrable:
                return self._conclude(job, context)
        limit: timedelta | None = self.execution_timeout
        until = None if limit is None else began + limit.total_seconds()
        trigger = BerthJobTrigger(job.id, self.conn_id, self.cancel_on_kill, until)
        self.defer(trigger=trigger, method_name=self.finish.__name__)
        raise AssertionError("a deferred task has left this method")

    def finish(self, context: Any, event: Mapping[str, Any]) -> str:
        """Goes on after the trigger. Returns the job's id."""
        self._job_id = event["job_id"]
        if "error" in event:
            raise Error(event["error"])
        if event.get("timed_out"):
            self.on_kill()
            raise AirflowTaskTimeout(f"The execution_timeout {self.execution_timeout} of {self.task_id} is over.")
        with self.hook.get_conn() as client:
            return self._conclude(client.get(event["job_id"]), context)

    def on_kill(self) -> None:
        """Cancels the job, unless `cancel_on_kill` is off."""
        self._is_killed = True
        if not self.cancel_on_kill or self._job_id is None:
            return
        # A signal calls this within a request, whose client may hold its locks.
        with self.hook.get_conn() as client:
            try:
                client.get(self._job_id).cancel()
            except Conflict as error:
                self.log.info("%s", error)

    def _labels(self, context: Any) -> dict[str, str]:
        """Returns the labels that all tries of this task's run share."""
        ti = context["ti"]
        labels = {"airflow-task": f"{ti.dag_id}/{ti.run_id}/{ti.task_id}/{ti.map_index}"}
        if address := conf.get("api", "base_url", fallback=None):
            labels["airflow-url"] = address
        return labels

    def _unfinished_job(self, client: Client, context: Any) -> Job | None:
        """Returns the job of an earlier try that has not ended."""
        if context["ti"].try_number < 2:
            return None
        filters = [f"{key}={value}" for key, value in self._labels(context).items()]
        for job in client.jobs(label=filters):
            if job.status in ("queued", "booting", "running"):
                self.log.info("An earlier try lost its worker. This try continues with its job %s.", job.name)
                return job
        return None

    def _submit(self, client: Client, context: Any) -> Job:
        fields = {"name_prefix": _name_prefix(self.task_id), **(self.fields or {})}
        if self.name is not None:
            del fields["name_prefix"]
        labels = {**fields.pop("labels", {}), **self._labels(context)}
        try:
            job = client.run(
                self.image,
                self.command,
                name=self.name,
                gpu=self.gpu,
                cpu=self.cpu,
                memory=self.memory,
                disk=self.disk,
                env=self.env,
                secret_env=self.secret_env,
                workdir=self.workdir,
                volumes=self.volumes,
                timeout=self.timeout,
                # Each try has its id. A worker that gets the same try again has the same.
                idempotency_key=f"airflow-{context['ti'].id}",
                labels=labels,
                **fields,
            )
        except BadRequest as error:
            # Another try would be rejected too.
            raise AirflowFailException(str(error)) from error
        self.log.info("Berth runs %s: %s", job.name, job.url)
        return job

    def _conclude(self, job: Job, context: Any) -> str:
        """Writes the job's log into the task's, and waits for the job's end. Raises JobFailed."""
        try:
            for line in job.logs(follow=True):
                self.log.info("%s", line)
        except ApiError as error:
            self.log.warning("The log of %s can't be read: %s", job.name, error)
        job.wait(check=False)
        for key, value in (("status", job.status), ("exit_code", job.exit_code), ("cost", job.cost)):
            context["ti"].xcom_push(key, value)
        if job.status == "cancelled":
            # Somebody wanted its end, so another try must not start it again.
            raise AirflowFailException(str(JobCancelled(job.record)))
        if job.status == "failed":
            raise JobFailed(job.record)
        return job.id


def _name_prefix(task_id: str) -> str:
    """Returns the beginning of the job's name."""
    return "".join(char if char.isascii() and char.isalnum() else "-" for char in task_id.lower())[:40].strip("-")


class BerthJobTrigger(BaseTrigger):
    """Waits in a triggerer for the end of a job."""

    def __init__(self, job_id: str, conn_id: str, cancel_on_kill: bool = True, until: float | None = None) -> None:
        """`until`: Unix time in seconds, after which it no longer waits."""
        super().__init__()
        self.job_id = job_id
        self.conn_id = conn_id
        self.cancel_on_kill = cancel_on_kill
        self.until = until

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Returns the class and its arguments, with which another triggerer continues."""
        arguments = {name: getattr(self, name) for name in ("job_id", "conn_id", "cancel_on_kill", "until")}
        return f"{type(self).__module__}.{type(self).__qualname__}", arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Gives one event: the job has ended (`job_id`), time is over (`timed_out`), or Berth has answered an `error`."""
        event: dict[str, Any] = {"job_id": self.job_id}
        try:
            async with await BerthHook(self.conn_id).get_async_conn() as client:
                job = await client.get(self.job_id)
                left = None if self.until is None else max(0.0, self.until - time.time())
                await job.wait(timeout=left, check=False)
        except WaitTimeout:
            event["timed_out"] = True
        except (Error, ValueError) as error:
            event["error"] = str(error)
        yield TriggerEvent(event)

    async def on_kill(self) -> None:
        """Cancels the job when a person ends the deferred task, unless `cancel_on_kill` is off."""
        if not self.cancel_on_kill:
            return
        async with await BerthHook(self.conn_id).get_async_conn() as client:
            try:
                await (await client.get(self.job_id)).cancel()
            except Conflict as error:
                self.log.info("%s", error)
