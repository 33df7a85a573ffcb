"""What blocks a thread. `_async_runtime` has the same names for asyncio."""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
Lock = threading.Lock
sleep = time.sleep


def scope() -> object:
    """Returns the scope of connections: all threads share them."""
    return "all threads"


def is_over(scope: object) -> bool:
    """Returns false: threads share the connections until the process ends."""
    return False


def in_thread(function: Callable[[], T]) -> T:
    """Runs the work here."""
    return function()
