"""Arrays: many jobs of one definition."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator

from .._api.api.arrays import cancel_array, get_array, list_array_indexes
from .._api.api.jobs import list_jobs
from .._api.models import ArrayIndex, ArrayRecord
from .._errors import ArrayFailed
from .._html import array_html
from ._connection import Connection
from ._job import Job
from ._waited import Waited


class Array(Waited):
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
        await self._read()
        return self

    @property
    def _has_ended(self) -> bool:
        return self.record.ended_at is not None

    async def _read(self, until: float | None = None) -> None:
        self.record = await self._connection.call(get_array.request(self.id), get_array.answer, until)

    async def wait(self, timeout: float | None = None, check: bool = True) -> Array:
        """
        Waits until all jobs have ended, for at most `timeout` seconds. With `check`, raises ArrayFailed unless all have
        succeeded. Raises WaitTimeout; the array runs on then.
        """
        await self._until_ended(timeout)
        if check and self.status != "succeeded":
            raise ArrayFailed(self.record)
        return self

    async def jobs(self) -> AsyncIterator[Job]:
        """Gives the jobs of the array that still exist, the newest first."""
        page_of = functools.partial(list_jobs.request, array=self.id)
        async for record in self._connection.items(page_of, list_jobs.answer, lambda page: page.jobs):
            yield Job(self._connection, record)

    async def cancel(self) -> Array:
        """Cancels the jobs that have not ended."""
        self.record = await self._connection.call(cancel_array.request(self.id), cancel_array.answer)
        return self

    def __len__(self) -> int:
        return self.record.size

    async def __aiter__(self) -> AsyncIterator[ArrayIndex]:
        page_of = functools.partial(list_array_indexes.request, self.id)
        async for index in self._connection.items(page_of, list_array_indexes.answer, lambda page: page.indexes):
            yield index

    def __repr__(self) -> str:
        return f"<berth.Array {self.name}: {self.status}, {self.record.size} jobs>"

    def _repr_html_(self) -> str:
        return array_html(self.record)
