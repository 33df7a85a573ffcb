"""Submits a job with the generated client, waits for its end and prints the record and the log as JSON."""

import json
import os
import sys
import time

sys.path.insert(0, sys.argv[1])

from berth_client import AuthenticatedClient  # noqa: E402
from berth_client.api.jobs import create_job, get_job, get_job_timeline, list_job_launches  # noqa: E402
from berth_client.api.whoami import who_am_i  # noqa: E402
from berth_client.models import JobCreated, JobPlan, JobRecord, JobSubmission, LaunchList, Timeline, WhoAmI  # noqa: E402

client = AuthenticatedClient(
    base_url=os.environ["BERTH_URL"],
    token=os.environ["BERTH_API_KEY"],
    auth_header_name="X-Service-Api-Key",
    prefix="",
    raise_on_unexpected_status=True,
)
caller = who_am_i.sync(client=client)
assert isinstance(caller, WhoAmI), caller

job = JobSubmission(image=os.environ["BERTH_IMAGE"], name="from-python", command=["sh", "-c", "echo hello; exit 3"])
plan = create_job.sync(client=client, body=job, dry_run=True)
assert isinstance(plan, JobPlan), plan
created = create_job.sync(client=client, body=job, idempotency_key="once")
assert isinstance(created, JobCreated), created

deadline = time.monotonic() + 120
while True:
    record = get_job.sync(created.job_id, client=client)
    assert isinstance(record, JobRecord), record
    if record.status in ("succeeded", "failed", "cancelled"):
        break
    assert time.monotonic() < deadline, record
    time.sleep(0.2)

launches = list_job_launches.sync(created.job_id, client=client)
assert isinstance(launches, LaunchList), launches
timeline = get_job_timeline.sync(created.job_id, client=client)
assert isinstance(timeline, Timeline), timeline
print(
    json.dumps(
        {
            "role": caller.role,
            "verdict": plan.verdict,
            "status": record.status,
            "exit_code": record.exit_code,
            "resources": record.resources.to_dict(),
            "launches": [launch.instance_type for launch in launches.launches],
            "timeline": [entry.type_ for entry in timeline.timeline],
        }
    )
)
