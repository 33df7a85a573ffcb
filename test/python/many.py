"""Submits 50 jobs at the same time, and prints their names as JSON."""

import asyncio
import json
import sys
from concurrent.futures import ThreadPoolExecutor

import berth


def by_threads() -> list[str]:
    with ThreadPoolExecutor(50) as pool:
        jobs = list(pool.map(lambda number: berth.run("a", name=f"many-threads-{number}"), range(50)))
    return [job.name for job in jobs]


async def by_tasks() -> list[str]:
    jobs = await asyncio.gather(*(berth.aio.run("a", name=f"many-tasks-{number}") for number in range(50)))
    return [job.name for job in jobs]


print(json.dumps(by_threads() if sys.argv[1] == "threads" else asyncio.run(by_tasks())))
