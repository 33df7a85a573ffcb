"""What blocks a thread. `_async_runtime` has the same names for asyncio."""

import os
import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
Lock = threading.Lock
sleep = time.sleep


def scope() -> object:
    """Returns the process: its threads share connections, and a fork needs its own."""
    return os.getpid()


def is_over(scope: object) -> bool:
    """Returns false: threads share the connections until the process ends."""
    return False


def in_thread(function: Callable[[], T]) -> T:
    """Runs the work here."""
    return function()
