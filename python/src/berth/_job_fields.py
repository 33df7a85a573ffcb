"""Bodies of the API from the arguments of `run`, `plan` and `map`. Texts have the grammar of the flags of `berth run`."""

from __future__ import annotations

import difflib
import os
import re
import secrets
import shlex
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple, Optional, Union

import attrs

from ._api.models import ArrayCreation, JobDefinition, JobSubmission, Resources
from ._api.models import Workdir as UploadedWorkdir
from ._api.types import UNSET
from ._built import ARRAY_NAME_LENGTH

#: Local folder, as `DIR` or `DIR:/PATH`.
Workdir = Optional[Union[str, "os.PathLike[str]"]]

_SIZE = re.compile(r"[0-9.]+([KMGT]i|[kMGT])")
_SECONDS = {"d": 86_400, "h": 3600, "m": 60, "s": 1}


def _json_name(name: str) -> str:
    """Returns the API's name of a field, such as `maxCostUsd` of `max_cost_usd`."""
    return name if name.endswith("_id") else re.sub("_([a-z])", lambda found: found[1].upper(), name)


#: Names of a submission's fields in Python, each with the API's name.
_FIELDS = {field.name: _json_name(field.name) for field in attrs.fields(JobSubmission) if field.init}


class Submission(NamedTuple):
    """Job to submit, and the local folder that it gets."""

    body: JobSubmission
    workdir: Workdir
    #: Text that only repetitions of this submission share; None: each call is another submission.
    idempotency_key: str | None = None


def submission_of(
    image: str,
    command: str | Sequence[str] | None = None,
    *,
    name: str | None = None,
    gpu: str | Mapping[str, Any] | None = None,
    cpu: float | None = None,
    memory: str | None = None,
    disk: str | None = None,
    env: Mapping[str, object] | None = None,
    secret_env: Mapping[str, str | Mapping[str, str]] | None = None,
    workdir: Workdir = None,
    volumes: Mapping[str, Mapping[str, Any]] | None = None,
    timeout: str | float | timedelta | None = None,
    idempotency_key: str | None = None,
    **fields: Any,
) -> Submission:
    """
    Returns the job of these arguments, which are those of `run`. Raises TypeError for a field that the API does not have,
    ValueError for a text that has no value.
    """
    body = JobSubmission(image=image)
    body.additional_properties.update(_api_fields(fields))
    if name is not None:
        body.name = name
    if command is not None:
        body.command = words_of(command)
    if env is not None:
        body.env = _as_is({key: str(value) for key, value in env.items()})
    if secret_env is not None:
        body.secret_env = _as_is({key: secret_of(key, value) for key, value in secret_env.items()})
    if volumes is not None:
        body.volumes = _as_is({key: dict(value) for key, value in volumes.items()})
    if timeout is not None:
        body.timeout_seconds = seconds_of("timeout", timeout)
    if any(part is not None for part in (gpu, cpu, memory, disk)):
        if "resources" in body.additional_properties:
            raise TypeError("resources excludes gpu, cpu, memory and disk: give the one or the others.")
        sizes = Resources(cpu=given(cpu), memory=given(memory), disk=given(disk))
        sizes.gpu = UNSET if gpu is None else _as_is(gpu_of(gpu) if isinstance(gpu, str) else dict(gpu))
        body.resources = sizes
    return Submission(body, workdir, idempotency_key)


def array_of(
    job: JobSubmission,
    name: str,
    matrix: Mapping[str, Iterable[object]] | None,
    size: int | None,
    parallelism: int | None,
    max_failed: int | None,
) -> ArrayCreation:
    """Returns the body of an array whose jobs are like `job`."""
    if (matrix is None) == (size is None):
        raise TypeError("An array has either matrix or size: give one of them.")
    definition = JobDefinition(image=job.image)
    body = ArrayCreation(name=name, job_definition=definition)
    body.size, body.parallelism, body.max_failed = given(size), given(parallelism), given(max_failed)
    if matrix is not None:
        body.matrix = _as_is({key: [str(value) for value in each] for key, each in matrix.items()})
    for field, value in job.to_dict().items():
        if field == "after":
            body.additional_properties[field] = value
        elif field not in ("image", "name", "namePrefix", "project_id", "organization_id"):
            definition.additional_properties[field] = value
    return body


def array_name(prefix: str) -> str:
    """Returns a new name of an array, whose length is limited."""
    suffix = secrets.token_hex(4)
    return f"{prefix[: ARRAY_NAME_LENGTH - len(suffix) - 1].rstrip('-')}-{suffix}"


def workdir_of(sha256: str, path: str | None) -> UploadedWorkdir:
    """Returns the field `workdir` of an upload."""
    return UploadedWorkdir(sha256=sha256, path=given(path))


def words_of(command: str | Sequence[str]) -> list[str]:
    """Returns the words of a command. A text is split as a shell does it; no shell runs."""
    return shlex.split(command) if isinstance(command, str) else [os.fspath(word) for word in command]


def gpu_of(text: str) -> str | dict[str, Any]:
    """Returns GPUs of a text: `24Gi` (memory in total), `L4`, `L4:2` (number of cards) or `A100:80Gi` (model and memory)."""
    if _SIZE.fullmatch(text):
        return text
    found = re.fullmatch(r"([A-Za-z][^:]*)(?::([^:]+))?", text)
    amount = (found[2] or "1") if found else ""
    if found and _SIZE.fullmatch(amount):
        return {"model": found[1], "vram": amount}
    if found and re.fullmatch("[1-9][0-9]*", amount):
        return {"model": found[1], "count": int(amount)}
    raise ValueError(
        f"gpu={text!r} is no GPU: write a model (L4), model and number (L4:2), model and memory (A100:80Gi) or memory (24Gi)."
    )


def seconds_of(name: str, value: str | float | timedelta) -> int:
    """Returns the seconds of a duration such as `90s`, `2h` or `1h30m`. A number is in seconds."""
    if isinstance(value, timedelta):
        return int(value.total_seconds())
    if not isinstance(value, str):
        return int(value)
    if not re.fullmatch(r"(\d+[smhd])+", value):
        raise ValueError(f"{name}={value!r} is not a duration: write 90s, 30m, 2h, 1d or 1h30m.")
    return sum(int(count) * _SECONDS[unit] for count, unit in re.findall(r"(\d+)([smhd])", value))


def secret_of(name: str, value: str | Mapping[str, str]) -> dict[str, str]:
    """Returns a key of a Secret of `SECRET:KEY`."""
    if not isinstance(value, str):
        return dict(value)
    secret, colon, key = value.partition(":")
    if not (secret and colon and key):
        # The text may be the value of a secret.
        raise ValueError(
            f"secret_env[{name!r}] must name a Secret and its key, as in hub:token. The value stays in the Secret."
        )
    return {"secret": secret, "key": key}


def _api_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields by the API's names. Their values pass as they are: the API checks them, and names what is wrong."""
    body: dict[str, Any] = {}
    for name, value in fields.items():
        api_name = _FIELDS.get(name, name)
        if api_name not in _FIELDS.values():
            close = difflib.get_close_matches(name, _FIELDS, 1)
            hint = f" Did you mean {close[0]}?" if close else ""
            raise TypeError(f"A job has no field {name!r}.{hint} Its fields: {', '.join(sorted(_FIELDS))}.")
        body[api_name] = value
    return body


def given(value: Any) -> Any:
    """Returns the value for the generated client, which omits None only as UNSET."""
    return UNSET if value is None else value


def _as_is(value: Any) -> Any:
    """Returns a value that the API checks: the generated types would drop fields that they don't know."""
    return value
