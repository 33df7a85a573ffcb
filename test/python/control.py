"""Waits shortly for jobs that never end, and cancels them."""

import os

import berth

image, command, labels = os.environ["BERTH_IMAGE"], ["sh", "-c", "sleep 1000"], {"made-by": "control"}


def expect(kind: type[berth.Error], thing: berth.Job | berth.Array, timeout: float | None = None) -> berth.Error:
    try:
        thing.wait(timeout=timeout)
    except kind as error:
        return error
    raise AssertionError(f"{thing} raised no {kind.__name__}")


job = berth.run(image, command, labels=labels)
expect(berth.WaitTimeout, job, 0.1)
error = expect(berth.JobCancelled, job.cancel())
assert isinstance(error, berth.JobFailed) and error.record.id == job.id, error
assert job.wait(check=False).status == "cancelled"

array = berth.map(command, size=2, image=image, labels=labels)
expect(berth.WaitTimeout, array, 0.1)
while len(list(array.jobs())) < 2:
    array.refresh()
failed = expect(berth.ArrayFailed, array.cancel())
assert array.record.cancelled_indexes == "0-1", array.record
assert [index.status for index in array] == ["cancelled", "cancelled"]
print(failed)
