"""When a request is repeated. src/client/retry.ts decides the same for the command line."""

from __future__ import annotations

import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

#: Most attempts after answers without a Retry-After, and without any answer. A person waits for the latter.
_MOST_ATTEMPTS = {"answered": 6, "unanswered": 4}
_LONGEST_BACKOFF_SECONDS = 8.0


@dataclass(frozen=True)
class Attempt:
    """Request that failed, or was rejected."""

    method: str
    #: True if the request has an Idempotency-Key.
    has_key: bool
    #: Status of the answer; None: there was none.
    status: int | None
    retry_after: str | None
    #: Attempts so far, this one included.
    count: int
    spent_seconds: float
    #: Longest time that one request is retried for, seconds.
    patience: float


def retry_delay(attempt: Attempt, now: float, random: float) -> float | None:
    """
    Returns the delay before the next attempt, seconds; None if the failure is final. A delay is never shorter than the
    answer's Retry-After. `now` is in seconds since 1970, and `random` from 0 to 1 for the jitter.
    """
    if attempt.method == "POST" and not attempt.has_key:
        return None
    if attempt.status is not None and attempt.status != 429 and attempt.status < 500:
        return None
    wanted = retry_after_seconds(attempt.retry_after, now)
    most = _MOST_ATTEMPTS["unanswered" if attempt.status is None else "answered"]
    if wanted is None and attempt.count >= most:
        return None
    backoff = min(_LONGEST_BACKOFF_SECONDS, 0.5 * 2.0 ** (attempt.count - 1)) * (0.5 + random / 2)
    delay = max(wanted or 0.0, backoff)
    return None if attempt.spent_seconds + delay > attempt.patience else delay


def retry_after_seconds(header: str | None, now: float | None = None) -> float | None:
    """Returns the seconds of a Retry-After header, which is a number or a date; None without a valid one."""
    if header is None:
        return None
    if header.strip().isdigit():
        return float(header)
    try:
        return max(0.0, parsedate_to_datetime(header).timestamp() - (time.time() if now is None else now))
    except ValueError:
        return None
