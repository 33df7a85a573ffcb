"""
Reads jobs with the sign-in of the command line until its token was renewed twice, and prints True. A task of a loop
reads meanwhile, which calls that block this loop must not stop.
"""

import asyncio

import berth
from berth._context import read_config


def token() -> str:
    return str(read_config()["contexts"]["short"]["signIn"]["accessToken"])


async def read_until_renewed(seen: set[str]) -> None:
    async with berth.aio.Client(context="short") as client:
        while len(seen) < 3:
            seen.update([token() async for _ in client.jobs(limit=1)] or [token()])


async def main() -> None:
    seen = {token()}
    reading = asyncio.create_task(read_until_renewed(seen))
    with berth.Client(context="short") as client:
        while not reading.done():
            list(client.jobs(limit=1))
            await asyncio.sleep(0.01)
    await reading


asyncio.run(main())
print(True)
