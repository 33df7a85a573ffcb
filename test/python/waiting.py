"""Waits for a job that fails, and prints the error as JSON."""

import json
import logging

import berth

logging.basicConfig(format="%(message)s")
job = berth.Client(patience=1).run("a")
print("job", job.name, flush=True)
try:
    job.wait(timeout=100)
except berth.JobFailed as error:
    page = job._repr_html_()
    facts = {"type": type(error).__name__, "exit_code": error.exit_code, "cause": error.cause}
    print("end", json.dumps({**facts, "escaped": "&lt;script&gt;" in page and "<script>" not in page}))
