"""Runs container jobs on the cheapest cloud VM that fits. `berth.aio` has the same names for asyncio."""

from . import aio
from ._built import __version__
from ._errors import (
    ApiError,
    ArrayFailed,
    BadRequest,
    Conflict,
    Error,
    Forbidden,
    JobCancelled,
    JobFailed,
    NotFound,
    SignedOut,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    WaitTimeout,
)
from ._sync._array import Array
from ._sync._client import Client
from ._sync._default import get, jobs, map, offers, plan, run
from ._sync._job import Job, Offers, Plan

__all__ = [
    "__version__",
    "aio",
    "ApiError",
    "Array",
    "ArrayFailed",
    "BadRequest",
    "Client",
    "Conflict",
    "Error",
    "Forbidden",
    "get",
    "Job",
    "JobCancelled",
    "JobFailed",
    "jobs",
    "map",
    "NotFound",
    "Offers",
    "offers",
    "Plan",
    "plan",
    "run",
    "SignedOut",
    "TooManyRequests",
    "Unauthorized",
    "Unavailable",
    "WaitTimeout",
]
