"""Waits for a job by the trigger of Airflow, as a triggerer does, and prints its events as JSON."""

import asyncio
import json
import os
import time
from typing import Any

from airflow.sdk.module_loading import import_string
from berth.airflow import BerthHook, BerthJobTrigger


async def event_of(**arguments: Any) -> Any:
    path, kept = BerthJobTrigger(**{"conn_id": BerthHook.default_conn_name, **arguments}).serialize()
    trigger = import_string(path)(**json.loads(json.dumps(kept)))
    (event,) = [event async for event in trigger.run()]
    return event.payload


async def main() -> None:
    client = await BerthHook().get_async_conn()
    image, fields = "busybox:1.36", {"idempotency_key": "airflow-try-1", "name_prefix": "trigger"}
    job, again = [await client.run(image, "sleep 9", **fields) for _ in range(2)]
    assert job.id == again.id, (job, again)
    waiting = asyncio.create_task(event_of(job_id=job.id))
    timed_out = await event_of(job_id=job.id, until=time.time())
    print("job", job.name, flush=True)
    ended = await waiting
    os.environ["AIRFLOW_CONN_WRONG"] = '{"conn_type": "berth", "host": "berth.example.com"}'
    wrong = await event_of(job_id=job.id, conn_id="wrong")
    missing = await event_of(job_id="missing")
    cancelled = await client.run(image, "sleep 9")
    for cancel in (False, True):
        await BerthJobTrigger(cancelled.id, BerthHook.default_conn_name, cancel_on_kill=cancel).on_kill()
        print("after on_kill", (await cancelled.refresh()).status)
    events = {"timed_out": timed_out, "ended": ended, "wrong": wrong["error"], "missing": missing["error"]}
    print("events", json.dumps({"id": job.id, **events, "tested": BerthHook().test_connection()}))


asyncio.run(main())
