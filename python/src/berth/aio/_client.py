"""The client of one project."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from io import BytesIO
from typing import Any, Concatenate, ParamSpec, TypeVar

from .. import _async_runtime as runtime
from .._api.api.arrays import create_array
from .._api.api.jobs import create_job, get_job, list_jobs
from .._api.api.offers import list_offers
from .._api.api.uploads import get_upload, put_upload
from .._api.api.whoami import who_am_i
from .._api.models import ArrayRecord, JobCreated, JobPlan
from .._api.types import File
from .._context import choose_context
from .._errors import Error, NotFound
from .._job_fields import Submission, array_name, array_of, given, submission_of, words_of, workdir_of
from .._workdir import PackedFolder, pack_workdir
from ._array import Array
from ._connection import Connection, log
from ._job import Job, Offers, Plan

_MIB = 1024 * 1024

P = ParamSpec("P")
R = TypeVar("R")


def _taking(
    arguments: Callable[P, Submission],
) -> Callable[[Callable[[Client, Submission], R]], Callable[Concatenate[Client, P], R]]:
    """Gives a method the arguments of a submission, so that each is declared once."""

    def decorate(method: Callable[[Client, Submission], R]) -> Callable[Concatenate[Client, P], R]:
        @functools.wraps(method)
        def call(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> R:
            return method(self, arguments(*args, **kwargs))

        # Help and notebooks show it.
        own, given = inspect.signature(method), inspect.signature(arguments)
        parameters = [
            own.parameters["self"].replace(kind=inspect.Parameter.POSITIONAL_ONLY),
            *given.parameters.values(),
        ]
        vars(call)["__signature__"] = own.replace(parameters=parameters)
        return call

    return decorate


class Client:
    """
    Connection to a project. Without arguments it takes BERTH_URL with BERTH_API_KEY, or the current context of the command
    `berth`, whose sign-in it renews.
    """

    def __init__(
        self,
        context: str | None = None,
        url: str | None = None,
        api_key: str | None = None,
        project: str | None = None,
        patience: float = 120,
        outage: float = 3600,
    ) -> None:
        """
        `patience`: longest time for which one request is retried, seconds. `outage`: longest time for which `wait` and a
        followed log wait for an API that can't be reached, seconds.
        """
        self._connection = Connection(choose_context(context, url, api_key, project), patience, outage)

    @_taking(submission_of)
    async def run(self, submission: Submission) -> Job:
        """
        Submits a job. Texts are those of the flags of `berth run`: `gpu="L4:2"`, `memory="16Gi"`, `timeout="2h"`,
        `workdir="."`. `fields` are further fields of a job, such as `max_cost_usd=3`.
        """
        return await self._submit(submission)

    @_taking(submission_of)
    async def plan(self, submission: Submission) -> Plan:
        """Returns the machines and prices of a job, with the arguments of `run`. It creates and uploads nothing."""
        request = create_job.request(body=submission.body, dry_run=True)
        planned = await self._connection.call(request, create_job.answer)
        if not isinstance(planned, JobPlan):
            raise Error("The API answered a dry run with a job.")
        return Plan(planned, self, submission)

    async def map(
        self,
        /,
        command: str | Sequence[str] | None = None,
        matrix: Mapping[str, Iterable[object]] | None = None,
        *,
        image: str,
        size: int | None = None,
        parallelism: int | None = None,
        max_failed: int | None = None,
        name: str | None = None,
        **arguments: Any,
    ) -> Array:
        """
        Submits an array: one job for each combination of the values in `matrix`, which it gets as environment variables,
        or `size` equal jobs. The other arguments are those of `run`.
        """
        submission = submission_of(image, command, **arguments)
        await self._add_workdir(submission)
        program = (words_of(command) if command is not None else ["array"])[0]
        array = array_of(submission.body, name or array_name(program), matrix, size, parallelism, max_failed)
        request = create_array.request(body=array, idempotency_key=given(submission.idempotency_key))
        created = await self._connection.call(request, create_array.answer)
        if not isinstance(created, ArrayRecord):
            raise Error("The API answered a submission with a plan.")
        return Array(self._connection, created)

    async def get(self, job_id: str) -> Job:
        """Returns the job with this id or name. Raises NotFound."""
        return Job(self._connection, await self._connection.call(get_job.request(job_id), get_job.answer))

    async def jobs(self, /, limit: int | None = None, **filters: Any) -> AsyncIterator[Job]:
        """
        Gives jobs, the newest first, page by page; at most `limit`. `filters` are parameters of `GET /jobs`, such as
        `status="running"`, `name_prefix` and `created_after`.
        """
        known = list_jobs.request.__annotations__
        for name in filters:
            if name not in known:
                raise TypeError(
                    f"Jobs have no filter {name!r}. Filters: {', '.join(sorted(set(known) - {'limit', 'offset', 'return'}))}."
                )
        texts: dict[str, Any] = {
            key: value.isoformat() if isinstance(value, datetime) else value for key, value in filters.items()
        }
        page_of = functools.partial(list_jobs.request, **texts)
        most = math.inf if limit is None else limit
        async for record in self._connection.items(page_of, list_jobs.answer, lambda page: page.jobs, most):
            yield Job(self._connection, record)

    async def offers(self, /, gpu: str | None = None, **requirements: Any) -> Offers:
        """
        Returns the cheapest machines, without a job. `requirements` are parameters of `GET /offers`: `cpu`, `memory`, `disk`,
        `region`, `cloud`, `architecture`, `provisioning`, `limit`.
        """
        given: dict[str, Any] = {
            key: [value] if key in ("region", "cloud") and isinstance(value, str) else value
            for key, value in requirements.items()
        }
        if gpu is not None:
            given["gpu"] = gpu
        return Offers(await self._connection.call(list_offers.request(**given), list_offers.answer))

    async def close(self) -> None:
        """Closes all connections."""
        await self._connection.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<berth.Client {self._connection.context.base_url}>"

    async def _submit(self, submission: Submission, plan: Plan | None = None) -> Job:
        await self._add_workdir(submission)
        request = create_job.request(body=submission.body, idempotency_key=given(submission.idempotency_key))
        created = await self._connection.call(request, create_job.answer)
        if not isinstance(created, JobCreated):
            raise Error("The API answered a submission with a plan.")
        for warning in created.warnings:
            log.warning("%s: %s", created.name, warning)
        job = await self.get(created.job_id)
        job.plan = plan
        return job

    async def _add_workdir(self, submission: Submission) -> None:
        """Uploads the local folder, unless the project has it, and names it in the job."""
        body, workdir, _ = submission
        if workdir is None:
            return
        caller = await self._connection.call(who_am_i.request(), who_am_i.answer)
        packed = await runtime.in_thread(lambda: pack_workdir(workdir, caller.limits.upload_mib * _MIB))
        await self._upload(packed)
        body.workdir = workdir_of(packed.sha256, packed.path)

    async def _upload(self, packed: PackedFolder) -> None:
        try:
            await self._connection.call(get_upload.request(packed.sha256), get_upload.answer)
        except NotFound:
            request = put_upload.request(packed.sha256, body=File(BytesIO(packed.archive)))
            # Bytes can be sent again after a failure, and a stream can't.
            request["content"] = packed.archive
            await self._connection.call(request, put_upload.answer)
