"""Extensions of Schemathesis with facts about the API that are not in its OpenAPI document."""

import itertools
import json
import os
import re
from base64 import b64encode
from collections.abc import Callable
from datetime import datetime
from random import Random
from urllib.parse import unquote
from uuid import uuid4

import schemathesis
import yaml
from hypothesis import strategies as st
from schemathesis import Case, HookContext, Response
from schemathesis.core.failures import AcceptedNegativeData, Failure
from schemathesis.openapi.checks import AllowHeaderMismatch, RejectedPositiveData

# Formats of strings: names in the JSON Schema for rules that no regular expression can express (see src/api/http).


def made_by(make: Callable[[Random], str]) -> st.SearchStrategy[str]:
    """Random texts from a function. Each text needs one draw, because Hypothesis discards hundreds of some."""
    return st.integers(0, 2**32).map(lambda seed: make(Random(seed)))


ALIASES = ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"]
# Every month has the days up to the 28th.
FIELDS = [(0, 59), (0, 23), (1, 28), (1, 12), (0, 7)]


def schedule(random: Random) -> str:
    """An alias, or five fields of numbers, ranges, steps and lists, like in standard cron."""
    if random.random() < 0.1:
        return random.choice(ALIASES)

    def item(low: int, high: int) -> str:
        first, last = sorted([random.randint(low, high), random.randint(low, high)])
        step = random.randint(1, 30)
        return random.choice(["*", str(first), f"{first}-{last}", f"{first}-{last}/{step}", f"*/{step}"])

    return " ".join(",".join(item(*field) for _ in range(random.choice([1, 1, 2, 3]))) for field in FIELDS)


schemathesis.openapi.format("cron", made_by(schedule))
# From the shipped price list: groups of regions that every cloud has, and GPU models.
schemathesis.openapi.format("region", st.sampled_from(["us", "eu", "asia"]))
schemathesis.openapi.format("gpu-model", st.sampled_from(["A100", "H100", "L4", "T4"]))
schemathesis.openapi.format("gpu", st.sampled_from(["24Gi", "L4", "T4:2", "A100:80Gi"]))
schemathesis.openapi.format("project-id", st.just(os.environ["BERTH_PROJECT"]))
schemathesis.openapi.format("organization-id", st.just(os.environ["BERTH_ORGANIZATION"]))


def key_file(random: Random) -> str:
    """The content of a key file in Google's format, with an invalid key."""
    account = f"project-{random.randint(0, 10**6)}"
    return json.dumps(
        {
            "type": "service_account",
            "project_id": account,
            "private_key": "-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----\n",
            "client_email": f"{account}@{account}.iam.gserviceaccount.com",
            "token_uri": "https://oauth2.googleapis.com/token",
        }
    )


schemathesis.openapi.format("service-account-key", made_by(key_file))


schemathesis.openapi.format("receiver", st.sampled_from(["https://ci.example.com/berth", "https://ci.example.com:8443/?a=b"]))


def signing_secret(random: Random) -> str:
    """The prefix of Standard Webhooks, and the base64 of 24 to 64 bytes."""
    return "whsec_" + b64encode(random.randbytes(random.randint(24, 64))).decode()


schemathesis.openapi.format("signing-secret", made_by(signing_secret))

FIRST, LAST = datetime(2100, 1, 1), datetime(9998, 12, 31)


@st.composite
def times_to_come(draw: st.DrawFn) -> str:
    """RFC 3339 with any offset. The only times in bodies are expiries of keys, which must be in the future."""
    time = draw(st.datetimes(min_value=FIRST, max_value=LAST)).replace(microsecond=0)
    fraction = draw(st.sampled_from(["", ".5", ".123456789"]))
    return time.isoformat() + fraction + draw(st.sampled_from(["Z", "+01:00", "-11:30"]))


schemathesis.openapi.format("date-time", times_to_come())


class Yaml12(yaml.SafeDumper):
    """
    Writes YAML 1.2, the version of application/yaml (RFC 9512). PyYAML writes YAML 1.1, in which other plain texts are
    numbers, so this class quotes strings. PyYAML would also write an object that occurs twice as an alias. The API
    rejects aliases by its contract.
    """

    def ignore_aliases(self, data: object) -> bool:
        return True


Yaml12.add_representer(str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"'))


@schemathesis.serializer("application/yaml", "text/yaml", "text/x-yaml")
def write_yaml(ctx: object, value: object) -> bytes:
    return value if isinstance(value, bytes) else yaml.dump(value, Dumper=Yaml12, allow_unicode=True).encode()


# Requests. Some become valid only with values from earlier responses.

RUN = uuid4()
NUMBERS = itertools.count()
OWN_KEY = [os.environ["BERTH_KEY_ID"], os.environ["BERTH_KEY_NAME"]]
OWNER = {"project_id": os.environ["BERTH_PROJECT"], "organization_id": os.environ["BERTH_ORGANIZATION"]}
# Records by id and by name.
CONNECTIONS: dict[str, dict] = {}
# Ids and names of jobs.
JOBS: dict[str, None] = {}


@schemathesis.hook
def after_call(context: HookContext, case: Case, response: Response) -> None:
    """Records the existing connections and jobs."""
    operation = operation_of(case)
    if operation == "createJob" and response.status_code == 201:
        JOBS.update(dict.fromkeys([response.json()["name"], response.json()["job_id"]]))
    if operation == "createConnection" and response.status_code == 201:
        record = response.json()
        CONNECTIONS[record["id"]] = CONNECTIONS[record["name"]] = record
    if operation == "deleteConnection" and response.status_code == 204:
        record = CONNECTIONS.get(connection_of(case), {})
        for field in ("id", "name"):
            CONNECTIONS.pop(record.get(field), None)


def connection_of(case: Case) -> str:
    return unquote(str(case.path_parameters.get("name")))


@schemathesis.hook
def before_call(context: HookContext, case: Case, kwargs: dict) -> None:
    operation = operation_of(case)
    give_own_idempotency_key(case)
    allow_any_version(case)
    if is_good(case) and isinstance(case.body, dict):
        # Examples in the document belong to another project.
        case.body.update({field: value for field, value in OWNER.items() if isinstance(case.body.get(field), str)})
        use_upload(case.body)
    if operation in ("deleteKey", "updateKey"):
        keep_own_key(case)
    if operation == "deleteWebhook":
        delete_by_id(case)
    if operation == "changeConnection":
        fit_to_type(case)
    if operation == "createKey":
        end_in_future(case)
    if operation in READ_ONLY and is_good(case):
        leave_out(case, READ_ONLY[operation])
    if operation == "cancelJob":
        cancel_known(case)


def operation_of(case: Case) -> str:
    return case.operation.definition.raw["operationId"]


def give_own_idempotency_key(case: Case) -> None:
    """
    Replaces a valid Idempotency-Key by an unused one: a key "MUST NOT be reused with another request with a different
    request payload" (draft-ietf-httpapi-idempotency-key-header, 2.2).
    """
    key = case.headers.get("Idempotency-Key")
    if isinstance(key, str) and re.fullmatch("[!-~]([ -~]{0,253}[!-~])?", key):
        case.headers["Idempotency-Key"] = f"{RUN}-{next(NUMBERS)}"


def allow_any_version(case: Case) -> None:
    """Replaces a valid If-Match by one that matches: the present version is known only from responses."""
    if is_good(case) and "If-Match" in case.headers:
        case.headers["If-Match"] = "*"


def keep_own_key(case: Case) -> None:
    """
    Replaces the id of the run's own key by an unknown id. Otherwise the API would delete or demote that key, and then
    correctly return 401 for every request (RFC 9110, 15.5.2).
    """
    if unquote(str(case.path_parameters.get("key_id"))).lower() in OWN_KEY:
        case.path_parameters["key_id"] = "unknown"


def delete_by_id(case: Case) -> None:
    """
    Replaces a name by an unknown one. Schemathesis follows objects by the id in their links: after a deletion by name it
    would take the correct 404 for a lost object. test/facade deletes by name.
    """
    if not re.fullmatch("[0-9a-fA-F-]{36}", unquote(str(case.path_parameters.get("name")))):
        case.path_parameters["name"] = "unknown"


def fit_to_type(case: Case) -> None:
    """
    Reduces a valid change of a connection to fields of this connection's type. The right alternative of ConnectionChange
    depends on the path. OpenAPI 3.1 can't relate a body to the path (4.8.14: a Media Type Object's schema defines the
    content alone).
    """
    if not is_good(case) or not isinstance(case.body, dict) or not CONNECTIONS:
        return
    if connection_of(case) not in CONNECTIONS:
        # An unknown connection gives 404 for any change. GET and DELETE test that.
        case.path_parameters["name"] = next(reversed(CONNECTIONS))
    type = CONNECTIONS[connection_of(case)]["type"]
    schemas = case.operation.schema.raw_schema["components"]["schemas"]
    schema = schemas[f"{type.capitalize()}ConnectionChange"]["properties"]
    own = [field for field in case.body if schema[field]["type"] != "null" and field not in BY_TYPE]
    # The other fields of a record may be repeated, but not changed. The tests of connections cover them.
    case.body = {field: case.body[field] for field in own if field not in ("id", "name", "type", "created_at")}


# Fields of several types, whose values have another form for each type. The tests of connections cover their changes.
BY_TYPE = ["network", "subnets", "disk"]


def use_upload(body: dict) -> None:
    """Replaces the hash of a working directory by that of the project's upload."""
    definition = body.get("job_definition", body)
    workdir = definition.get("workdir") if isinstance(definition, dict) else None
    if isinstance(workdir, dict):
        workdir["sha256"] = os.environ["BERTH_UPLOAD"]


def cancel_known(case: Case) -> None:
    """Replaces the job of a valid cancel by an existing one: a 404 shows no cancel, and GET tests unknown jobs."""
    if is_good(case) and JOBS and unquote(str(case.path_parameters.get("id"))) not in JOBS:
        case.path_parameters["id"] = next(reversed(JOBS))


def end_in_future(case: Case) -> None:
    """Moves an expiry into the future: JSON Schema can't require that, and times from earlier responses are past."""
    if isinstance(case.body, dict) and str(case.body.get("expires_at")).startswith("20"):
        case.body["expires_at"] = "3" + case.body["expires_at"][1:]


# Fields that a PATCH may repeat from a record. Schemathesis cannot know their values.
READ_ONLY = {
    "changeCronJob": ["id", "name", "created_at"],
    "changeArray": ["id", "name", "created_at"],
    "changeWebhook": ["id", "name", "format", "created_at"],
    "updateKey": ["id", "name", "created_at", "expires_at"],
    "updateOrganization": ["id", "role"],
    "updateProject": ["id", "organizationId"],
}


def leave_out(case: Case, fields: list[str]) -> None:
    """Leaves out read-only fields in most requests, so that the others are tested. The rest shows the rejection."""
    if isinstance(case.body, dict) and next(NUMBERS) % 8 != 0:
        for field in fields:
            case.body.pop(field, None)


def is_good(case: Case) -> bool:
    return case.meta is not None and case.meta.generation.mode.is_positive


# Rejections for reasons that no schema of a request describes. Each has a problem type, and no other type counts.

BY_STATE = {
    # RFC 9110, 13.1.1: If-Match depends on the present version, not on the request.
    "precondition-failed": 412,
    # RFC 9110, 15.5.14: depends on the size of the content, before it is parsed. JSON Schema counts characters and items,
    # not bytes.
    "too-large": 413,
}


# Faults of valid-looking bodies that JSON Schema cannot describe: sums of bytes, equal values in two places, and
# read-only fields that a PATCH may repeat but not change.
BY_CONTENT = re.compile(
    r"must have at most \d+ bytes in total|have the same (name|mountPath): |cannot be changed: it is |"
    r"is_active can't be true while |"
    # Products of lengths, and names that the definition has too.
    r"matrix has \d+ combinations|matrix\.\S+ is a variable of |"
    # Addresses that match their pattern: an empty part of an IPv6 address, a port above 65535.
    r"^url must be an address such as|"
    # Fields that depend on each other, and ranges in a text.
    r"must have its lower exit code first|is only for the action newVm|must be at least resources\.memory|"
    r"must not be true with checkpoint|must have either job or array|must name each job and each array once|"
    r"must name another (job|array) than |reuse can't be combined with maxCostUsd|"
    # Calendars and periods: 30 February, and parameters that limit each other.
    r"must be a day \(UTC\), such as|must be before to \(|whole months|"
    # A change of a connection is checked together with its other settings and fields.
    r"together with the connection's other fields|"
    r"(network|subnets|a subnet's name|public_address: false) requires (subnets|network)"
)


@schemathesis.hook
def filter_failure(context: HookContext, failure: Failure, case: Case, response: Response) -> bool:
    # A GET of /jobs/cancellations reads the job with that name (operation getJob).
    if isinstance(failure, AllowHeaderMismatch) and operation_of(case) == "cancelJobs":
        return bool(failure.missing_methods) or list(failure.undocumented_methods) != ["GET"]
    if isinstance(failure, RejectedPositiveData) and response.status_code == 400:
        return not all(BY_CONTENT.search(fault["detail"]) for fault in response.json()["errors"])
    if not isinstance(failure, RejectedPositiveData | AcceptedNegativeData) or response.status_code not in BY_STATE.values():
        return True
    name = response.json()["type"].rsplit("/", 1)[-1]
    return BY_STATE.get(name) != response.status_code
