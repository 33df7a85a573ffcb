"""The names of `berth`, for asyncio."""

from ._array import Array
from ._client import Client
from ._default import get, jobs, map, offers, plan, run
from ._job import Job, Offers, Plan

__all__ = [
    "Array",
    "Client",
    "get",
    "Job",
    "jobs",
    "map",
    "Offers",
    "offers",
    "Plan",
    "plan",
    "run",
]
