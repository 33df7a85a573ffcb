"""Errors of Berth. Each text is the API's own, with what the caller can do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._api.models import ArrayRecord, JobRecord


class Error(Exception):
    """Failure of a call. Processes may send it to each other."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.args, self.__dict__)


def _restored(kind: type[Error], args: tuple[Any, ...], state: dict[str, Any]) -> Error:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(state)
    return error


class ApiError(Error):
    """Answer of the API that is no success."""

    def __init__(self, status: int, problem: Mapping[str, Any], address: str = "") -> None:
        """`problem` is a problem document (RFC 9457); empty for an answer of another program, such as a proxy."""
        #: Invalid fields: each has `pointer` and `detail`.
        self.errors: list[dict[str, str]] = list(problem.get("errors") or [])
        detail = str(problem.get("detail") or f"{address} answered {status}")
        each = [f"  {one.get('detail')}" for one in self.errors]
        super().__init__("\n".join([detail.replace(": see errors.", ":") if each else detail, *each]))
        self.status = status
        #: Last part of the problem's type, such as `name-taken`; empty if there is none.
        self.type = str(problem.get("type") or "").rsplit("/", 1)[-1]
        #: Id of the request in the API's log.
        self.request_id: str | None = problem.get("instance")


class BadRequest(ApiError):
    """The API rejects a field. The text names the field, its value, and what is allowed."""

    @property
    def field(self) -> str | None:
        """Path of the first invalid field, such as `resources.gpu`; None: the error is about no field."""
        pointer = self.errors[0].get("pointer", "") if self.errors else ""
        return pointer.lstrip("#/").replace("/", ".") or None


class Unauthorized(ApiError):
    """The credential is missing, wrong or expired."""


class SignedOut(Unauthorized):
    """The caller is not signed in, or the sign-in has ended: run `berth login`."""

    def __init__(self, detail: str) -> None:
        super().__init__(401, {"detail": detail})


class Forbidden(ApiError):
    """The credential's role does not allow this, or a limit is reached."""


class NotFound(ApiError):
    """There is no such job, array or project."""


class Conflict(ApiError):
    """The name is taken, or the job has ended."""


class TooManyRequests(ApiError):
    """A limit of requests or of unfinished jobs is reached, and stayed so for as long as the client waits."""


class Unavailable(ApiError):
    """The API can't be reached, or is overloaded."""


class WaitTimeout(Error, TimeoutError):
    """The time of a wait is over. The job runs on."""


class JobFailed(Error):
    """A job ended without success."""

    def __init__(self, record: JobRecord, log_tail: str = "") -> None:
        cause = record.error_message or record.message or record.reason or "no reason is known"
        end = f"\n{log_tail}" if log_tail else ""
        super().__init__(f"{record.name} {'was cancelled' if record.status == 'cancelled' else 'failed'}: {cause}{end}")
        #: Record of the job at its end.
        self.record: JobRecord = record
        #: Cause in the API's words.
        self.cause = str(cause)
        #: Exit code of the container; None: no container ended.
        self.exit_code: int | None = record.exit_code
        #: Last lines of the log.
        self.log_tail = log_tail


class JobCancelled(JobFailed):
    """A job was cancelled."""


class ArrayFailed(Error):
    """An array ended, and some of its indexes have failed or were cancelled."""

    def __init__(self, record: ArrayRecord) -> None:
        parts = [
            f"{word} indexes: {indexes}"
            for word, indexes in (("failed", record.failed_indexes), ("cancelled", record.cancelled_indexes))
            if indexes
        ]
        super().__init__(
            f"{record.name} has {record.status}: {record.message or record.reason or ''} {'; '.join(parts)}".rstrip()
        )
        #: Record of the array at its end.
        self.record: ArrayRecord = record
        #: Indexes, such as `3,7-9`.
        self.failed_indexes = str(record.failed_indexes)


_BY_STATUS: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    412: Conflict,
    413: BadRequest,
    415: BadRequest,
    422: BadRequest,
    429: TooManyRequests,
}


def error_of(status: int, problem: Mapping[str, Any], address: str) -> ApiError:
    """Returns the error of an answer."""
    kind = _BY_STATUS.get(status, Unavailable if status >= 500 else ApiError)
    return kind(status, problem, address)
