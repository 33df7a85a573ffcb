"""Arrays: many jobs of one definition."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator

from .. import _async_runtime as runtime
from .._api.api.arrays import cancel_array, get_array, list_array_indexes
from .._api.api.jobs import list_jobs
from .._api.models import ArrayIndex, ArrayRecord
from .._errors import ArrayFailed, WaitTimeout
from .._html import array_html
from ._connection import Connection
from ._job import Job, poll_delay

#: Largest page that every list of the API returns.
PAGE_SIZE = 100


class Array:
    """Array of the project. Iteration gives the results of its indexes, in their order."""

    def __init__(self, connection: Connection, record: ArrayRecord) -> None:
        self._connection = connection
        #: Record of the API, as last read.
        self.record = record

    @property
    def id(self) -> str:
        """Id, which no other array gets."""
        return self.record.id

    @property
    def name(self) -> str:
        """Name in the project."""
        return self.record.name

    @property
    def status(self) -> str:
        """Status as last read: `succeeded`, `failed` or `cancelled` at the end."""
        return self.record.status

    @property
    def cost(self) -> float:
        """Cost of the jobs whose VMs are deleted, USD, as last read."""
        return self.record.actual_cost

    async def refresh(self) -> Array:
        """Reads the record again."""
        return await self._read()

    async def _read(self, until: float | None = None) -> Array:
        self.record = await self._connection.call(get_array.request(self.id), get_array.answer, until)
        return self

    async def wait(self, timeout: float | None = None, check: bool = True) -> Array:
        """
        Waits until all jobs have ended, for at most `timeout` seconds. With `check`, raises ArrayFailed unless all have
        succeeded. Raises WaitTimeout; the array runs on then.
        """
        until = math.inf if timeout is None else time.monotonic() + timeout
        count = 0
        while True:
            await self._read(until)
            if self.record.ended_at is not None:
                break
            left = until - time.monotonic()
            if left <= 0:
                raise WaitTimeout(f"{self.name} has not ended in {timeout:g} s: it is {self.status}, and runs on.")
            await runtime.sleep(min(poll_delay(count), left))
            count += 1
        if check and self.status != "succeeded":
            raise ArrayFailed(self.record)
        return self

    async def jobs(self) -> AsyncIterator[Job]:
        """Gives the jobs of the array that still exist, the newest first."""
        offset = 0
        while True:
            request = list_jobs.request(array=self.id, limit=PAGE_SIZE, offset=offset)
            page = await self._connection.call(request, list_jobs.answer)
            for record in page.jobs:
                yield Job(self._connection, record)
            offset += len(page.jobs)
            if not page.jobs or offset >= page.total:
                return

    async def cancel(self) -> Array:
        """Cancels the jobs that have not ended."""
        self.record = await self._connection.call(cancel_array.request(self.id), cancel_array.answer)
        return self

    def __len__(self) -> int:
        return self.record.size

    async def __aiter__(self) -> AsyncIterator[ArrayIndex]:
        offset = 0
        while True:
            request = list_array_indexes.request(self.id, limit=PAGE_SIZE, offset=offset)
            page = await self._connection.call(request, list_array_indexes.answer)
            for index in page.indexes:
                yield index
            offset += len(page.indexes)
            if not page.indexes or offset >= page.total:
                return

    def __repr__(self) -> str:
        return f"<berth.Array {self.name}: {self.status}, {self.record.size} jobs>"

    def _repr_html_(self) -> str:
        return array_html(self.record)
