"""Makes mistakes, and prints the errors as JSON."""

import json
import os
from collections.abc import Callable

import berth


def failure(call: Callable[[], object]) -> Exception:
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


key = os.environ["BERTH_API_KEY"]
job = berth.run("a")
errors = {
    "unknown": failure(lambda: berth.run("a", memmory="4Gi")),
    "bad": failure(lambda: berth.run("a", volumes={"data": {"bucket": "b", "mountPth": "/b"}})),
    "gpu": failure(lambda: berth.plan("a", gpu="L4:none")),
    "missing": failure(lambda: berth.get("no-such-job")),
    "conflict": failure(lambda: berth.run("a", name=job.name)),
    "key": failure(lambda: berth.Client(url=os.environ["BERTH_URL"], api_key="wrong", project="none").get("a")),
    "unreachable": failure(lambda: berth.Client(url="http://127.0.0.1:9", api_key=key).get("a")),
}
assert isinstance(errors["unknown"], TypeError) and isinstance(errors["gpu"], ValueError)
shown = [repr(error) + str(error) for error in errors.values()] + [repr(job), job._repr_html_()]
shown.append(repr(berth.Client(url=os.environ["BERTH_URL"], api_key=key).__dict__))
bad = errors["bad"]
assert isinstance(bad, berth.BadRequest)
print(
    json.dumps(
        {
            "unknown": str(errors["unknown"]),
            "bad": {"type": type(bad).__name__, "field": bad.field, "text": str(bad)},
            "gpu": str(errors["gpu"]),
            "missing": type(errors["missing"]).__name__,
            "conflict": type(errors["conflict"]).__name__,
            "key": type(errors["key"]).__name__,
            "unreachable": str(errors["unreachable"]),
            "shows_key": any(key in text for text in shown),
        }
    )
)
