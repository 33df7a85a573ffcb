"""What waits in asyncio. `_sync_runtime` has the same names for threads."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
Lock = asyncio.Lock
sleep = asyncio.sleep


def scope() -> object:
    """Returns the loop: connections belong to it."""
    return asyncio.get_running_loop()


def is_over(scope: object) -> bool:
    """Returns true if the connections of this scope are of no more use."""
    return isinstance(scope, asyncio.AbstractEventLoop) and scope.is_closed()


async def in_thread(function: Callable[[], T]) -> T:
    """Runs work that takes long, without a stop of the loop."""
    return await asyncio.to_thread(function)
