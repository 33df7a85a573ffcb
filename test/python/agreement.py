"""Reads texts and decides about attempts, and prints the results as JSON."""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from berth._job_fields import gpu_of, seconds_of
from berth._retry import Attempt, retry_delay


def read(parse: Callable[[str], Any], text: str) -> Any:
    try:
        return parse(text)
    except ValueError:
        return None


def delay(attempt: dict[str, Any]) -> float | None:
    facts = Attempt(
        method=attempt["method"],
        has_key=attempt["hasKey"],
        status=attempt.get("status"),
        retry_after=attempt["retryAfter"],
        count=attempt["count"],
        spent_seconds=attempt["spentSeconds"],
        patience=120,
    )
    return retry_delay(facts, time.time(), 0.5)


asked = json.loads(sys.argv[1])
print(
    json.dumps(
        {
            "gpus": [read(gpu_of, text) for text in asked["gpus"]],
            "durations": [read(lambda text: seconds_of("timeout", text), text) for text in asked["durations"]],
            "delays": [delay(attempt) for attempt in asked["attempts"]],
        }
    )
)
