"""Follows the log of a job and waits for its end at the same time, by threads or by tasks."""

import asyncio
import json
import logging
import os
import sys
from concurrent.futures import ThreadPoolExecutor

import berth

HALF = 5000
logging.basicConfig(format="%(message)s")
way, script = sys.argv[1:]
image, command = os.environ["BERTH_IMAGE"], ["sh", "-c", script]


def report(lines: list[str], status: str) -> None:
    in_order = lines == [str(number) for number in range(1, 2 * HALF + 1)]
    print("lines", json.dumps({"count": len(lines), "in_order": in_order, "status": status}), flush=True)


def by_threads() -> None:
    client = berth.Client(patience=1)
    job = client.run(image, command)
    lines = []
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(client.get(job.id).wait)
        for line in job.logs(follow=True):
            lines.append(line)
            if len(lines) == HALF:
                print("first half of", job.name, flush=True)
        report(lines, waiting.result().status)


async def by_tasks() -> None:
    client = berth.aio.Client(patience=1)
    job = await client.run(image, command)
    lines = []
    waiting = asyncio.create_task((await client.get(job.id)).wait())
    async for line in job.logs(follow=True):
        lines.append(line)
        if len(lines) == HALF:
            print("first half of", job.name, flush=True)
    report(lines, (await waiting).status)


if way == "threads":
    by_threads()
else:
    asyncio.run(by_tasks())
