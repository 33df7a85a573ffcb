"""Jobs, plans and offers."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING
from urllib.parse import quote

import httpx

from .. import _async_runtime as runtime
from .._api.api.jobs import cancel_job, get_job, get_job_logs, get_job_timeline, get_job_usage
from .._api.models import JobPlan, JobRecord, JobUsage, Offer, OfferList, PlannedPlacement, TimelineEntry
from .._errors import ApiError, JobCancelled, JobFailed
from .._html import job_html, offers_html, plan_html, usd
from .._job_fields import Submission
from .._log_lines import LogLines, plain
from ._connection import Connection
from ._waited import Waited

if TYPE_CHECKING:
    from ._client import Client
#: Lines of a log that errors and notebooks show.
_TAIL_LINES = 20


class Job(Waited):
    """Job of the project."""

    def __init__(self, connection: Connection, record: JobRecord) -> None:
        self._connection = connection
        self._log_tail = ""
        #: Record of the API, as last read.
        self.record = record
        #: Plan whose `run` has submitted the job; None: another way.
        self.plan: Plan | None = None

    @property
    def id(self) -> str:
        """Id, which no other job gets."""
        return self.record.id

    @property
    def name(self) -> str:
        """Name in the project."""
        return self.record.name

    @property
    def status(self) -> str:
        """`queued`, `booting`, `running`, `succeeded`, `failed` or `cancelled`, as last read."""
        return self.record.status

    @property
    def exit_code(self) -> int | None:
        """Exit code of the container, as last read; None: none has ended."""
        return self.record.exit_code

    @property
    def cost(self) -> float | None:
        """Cost so far, USD, as last read; None: no VM was created yet."""
        return self.record.actual_cost

    @property
    def url(self) -> str:
        """Address of the job's page in the web console."""
        project, name = (quote(text, safe="") for text in (self.record.project_id, self.record.name))
        return f"{self._connection.context.url}/console/projects/{project}/jobs/{name}"

    async def refresh(self) -> Job:
        """Reads the record again."""
        await self._read()
        return self

    @property
    def _has_ended(self) -> bool:
        return self.status in ("succeeded", "failed", "cancelled")

    async def _read(self, until: float | None = None) -> None:
        self.record = await self._connection.call(get_job.request(self.id), get_job.answer, until)

    async def wait(self, timeout: float | None = None, check: bool = True) -> Job:
        """
        Waits until the job has ended, for at most `timeout` seconds. With `check`, raises JobFailed or JobCancelled unless
        it has succeeded. Raises WaitTimeout; the job runs on then.
        """
        await self._until_ended(timeout)
        if self.status != "succeeded":
            self._log_tail = await self._tail()
            if check:
                raise (JobCancelled if self.status == "cancelled" else JobFailed)(self.record, self._log_tail)
        return self

    async def _tail(self) -> str:
        try:
            return "\n".join([plain(line) async for line in self.logs(tail=_TAIL_LINES)])
        except ApiError as error:
            return f"The log can't be read: {error}"

    async def logs(self, follow: bool = False, tail: int | None = None, timestamps: bool = False) -> AsyncIterator[str]:
        """
        Gives the lines of the log. With `follow` it ends when the job has ended; a connection that breaks loses and repeats
        no line. `tail` gives only the last lines, `timestamps` puts the time before each.
        """
        if follow and tail is not None:
            raise ValueError("follow excludes tail: a followed log begins with its first line.")
        lines = LogLines()
        if not follow:
            request = get_job_logs.request(self.id, timestamps=timestamps)
            if tail is not None:
                request["params"]["tail"] = tail
            response = await self._connection.send(request)
            for line in [*lines.add(response.content), *lines.end()]:
                yield line
            return
        while not await self._is_over(lines):
            request = get_job_logs.request(self.id, follow=True, timestamps=timestamps)
            response = await self._connection.steadily(request, math.inf, stream=True)
            lines.reopened()
            try:
                async for piece in response.aiter_bytes():
                    for line in lines.add(piece):
                        yield line
                lines.is_whole = True
            except httpx.TransportError:
                # The connection broke, or was silent for long.
                pass
            finally:
                await response.aclose()
        for line in lines.end():
            yield line

    async def _is_over(self, lines: LogLines) -> bool:
        """Returns true if the log has arrived to its end. A stream also ends when the API stops; then the job runs on."""
        was_whole, lines.is_whole = lines.is_whole, False
        if not was_whole:
            if lines.is_opened:
                await runtime.sleep(1)
            return False
        await self._read(math.inf)
        if self._has_ended:
            return True
        await runtime.sleep(1)
        return False

    async def usage(self) -> JobUsage:
        """Returns what the job uses and used: CPU, memory, disk, network and GPUs."""
        return await self._connection.call(get_job_usage.request(self.id), get_job_usage.answer)

    async def timeline(self) -> list[TimelineEntry]:
        """Returns what happened to the job, in plain sentences."""
        found = await self._connection.call(get_job_timeline.request(self.id), get_job_timeline.answer)
        return found.timeline

    async def cancel(self) -> Job:
        """Cancels the job. Raises Conflict if it has ended otherwise."""
        self.record = await self._connection.call(cancel_job.request(self.id), cancel_job.answer)
        return self

    def __repr__(self) -> str:
        return f"<berth.Job {self.name}: {self.status}>"

    def _repr_html_(self) -> str:
        return job_html(self.record, self.url, self._log_tail)


class Plan:
    """Machines that a job would get, with their prices. Nothing was created."""

    def __init__(self, record: JobPlan, client: Client, submission: Submission) -> None:
        self._client, self._submission = client, submission
        #: Answer of the API.
        self.record = record

    async def run(self) -> Job:
        """Submits the job of this plan. Its machine and price may have changed since."""
        return await self._client._submit(self._submission, self)

    @property
    def verdict(self) -> str:
        """`placeable`, `waits`, `noOffer` or `fails`."""
        return self.record.verdict

    @property
    def message(self) -> str:
        """Reason of the verdict, in a sentence."""
        return self.record.message

    @property
    def cost(self) -> float | None:
        """Expected cost, USD; None: no machine fits."""
        return self.record.estimated_cost

    @property
    def warnings(self) -> list[str]:
        """What may become expensive."""
        return self.record.warnings

    @property
    def placements(self) -> list[PlannedPlacement]:
        """Machines in the order in which Berth tries them."""
        return self.record.placements

    def __repr__(self) -> str:
        first = self.placements[0] if self.placements else None
        machine = (
            "no machine"
            if first is None
            else f"{first.provider} {first.instance_type} in {first.region}, about {usd(self.cost)}"
        )
        return f"<berth.Plan {self.verdict}: {machine}>"

    def _repr_html_(self) -> str:
        return plan_html(self.record)


class Offers(list[Offer]):
    """Cheapest machines for requirements."""

    def __init__(self, record: OfferList) -> None:
        super().__init__(record.offers)
        #: Number of all machines that match.
        self.total = record.total
        #: Nearest machine, in a sentence, if none matches.
        self.message = record.message

    def _repr_html_(self) -> str:
        return offers_html(self, self.message)
