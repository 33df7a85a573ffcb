"""Waits for the end of a job or an array."""

from __future__ import annotations

import abc
import math
import time

from .. import _async_runtime as runtime
from .._errors import TooManyRequests, Unavailable, WaitTimeout
from ._connection import Connection

#: Shortest and longest time between two reads, seconds.
_POLL_SECONDS = (0.5, 5.0)


class Waited(abc.ABC):
    """Thing of the project that has a name and an end."""

    _connection: Connection

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """Name in the project."""

    @property
    @abc.abstractmethod
    def status(self) -> str:
        """Status, as last read."""

    @property
    @abc.abstractmethod
    def _has_ended(self) -> bool: ...

    @abc.abstractmethod
    async def _read(self, until: float | None = None) -> None:
        """Reads the record. With `until`, also through an outage of the API."""

    async def _until_ended(self, timeout: float | None) -> None:
        until = math.inf if timeout is None else time.monotonic() + timeout
        pause = _POLL_SECONDS[0]
        while True:
            try:
                await self._read(until)
            except (Unavailable, TooManyRequests):
                if time.monotonic() < until:
                    raise
            if self._has_ended:
                return
            left = until - time.monotonic()
            if left <= 0:
                raise WaitTimeout(f"{self.name} has not ended in {timeout:g} s: it is {self.status}, and runs on.")
            await runtime.sleep(min(pause, left))
            pause = min(_POLL_SECONDS[1], pause * 1.5)
