"""What Schemathesis has to know of the API beside its OpenAPI document."""

import itertools
import json
import os
import re
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
from schemathesis.openapi.checks import RejectedPositiveData

# Formats of strings: JSON Schema says by name what no regular expression can (the rules in src/facade).


def made_by(make: Callable[[Random], str]) -> st.SearchStrategy[str]:
    """Texts made at random by a function: one draw for each, as some are drawn by the hundred in vain."""
    return st.integers(0, 2**32).map(lambda seed: make(Random(seed)))


ALIASES = ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"]
# Up to the 28th every date comes, in whatever month.
FIELDS = [(0, 59), (0, 23), (1, 28), (1, 12), (0, 7)]


def schedule(random: Random) -> str:
    """An alias, or five fields of numbers, ranges, steps and lists, as standard cron has them."""
    if random.random() < 0.1:
        return random.choice(ALIASES)

    def item(low: int, high: int) -> str:
        first, last = sorted([random.randint(low, high), random.randint(low, high)])
        step = random.randint(1, 30)
        return random.choice(["*", str(first), f"{first}-{last}", f"{first}-{last}/{step}", f"*/{step}"])

    return " ".join(",".join(item(*field) for _ in range(random.choice([1, 1, 2, 3]))) for field in FIELDS)


schemathesis.openapi.format("cron", made_by(schedule))
# Of the price list that Berth comes with: groups of regions that every cloud has, and models.
schemathesis.openapi.format("region", st.sampled_from(["us", "eu", "asia"]))
schemathesis.openapi.format("gpu-model", st.sampled_from(["A100", "H100", "L4", "T4"]))
schemathesis.openapi.format("project-id", st.just(os.environ["BERTH_PROJECT"]))
schemathesis.openapi.format("organization-id", st.just(os.environ["BERTH_ORGANIZATION"]))


def key_file(random: Random) -> str:
    """The content of a key file as Google makes them, with a key that opens nothing."""
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


FIRST, LAST = datetime(2100, 1, 1), datetime(9998, 12, 31)


@st.composite
def times_to_come(draw: st.DrawFn) -> str:
    """RFC 3339 with any offset; the only times in bodies are the ends of keys, which must be in the future."""
    time = draw(st.datetimes(min_value=FIRST, max_value=LAST)).replace(microsecond=0)
    fraction = draw(st.sampled_from(["", ".5", ".123456789"]))
    return time.isoformat() + fraction + draw(st.sampled_from(["Z", "+01:00", "-11:30"]))


schemathesis.openapi.format("date-time", times_to_come())


class Yaml12(yaml.SafeDumper):
    """
    Writes YAML 1.2, which application/yaml is (RFC 9512). PyYAML knows 1.1, where other plain texts are numbers, so
    strings are quoted; and it writes a value that stands twice in Python's memory as an alias, which is no part of the
    value, and which the API refuses by its contract.
    """

    def ignore_aliases(self, data: object) -> bool:
        return True


Yaml12.add_representer(str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"'))


@schemathesis.serializer("application/yaml", "text/yaml", "text/x-yaml")
def write_yaml(ctx: object, value: object) -> bytes:
    return value if isinstance(value, bytes) else yaml.dump(value, Dumper=Yaml12, allow_unicode=True).encode()


# Requests. What makes one good is sometimes known only once there are answers.

RUN = uuid4()
NUMBERS = itertools.count()
OWN_KEY = [os.environ["BERTH_KEY_ID"], os.environ["BERTH_KEY_NAME"]]
OWNER = {"project_id": os.environ["BERTH_PROJECT"], "organization_id": os.environ["BERTH_ORGANIZATION"]}
# By id and by name.
CONNECTIONS: dict[str, dict] = {}
# Ids and names.
JOBS: dict[str, None] = {}


@schemathesis.hook
def after_call(context: HookContext, case: Case, response: Response) -> None:
    """Notes which connections and jobs there are."""
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
        # Examples in the document are of another project.
        case.body.update({field: value for field, value in OWNER.items() if isinstance(case.body.get(field), str)})
    if operation in ("deleteKey", "updateKey"):
        keep_own_key(case)
    if operation == "changeConnection":
        fit_to_type(case)
    if operation == "createKey":
        end_in_future(case)
    if operation == "cancelJob":
        cancel_known(case)


def operation_of(case: Case) -> str:
    return case.operation.definition.raw["operationId"]


def give_own_idempotency_key(case: Case) -> None:
    """
    A good Idempotency-Key becomes one that was never used: it "MUST NOT be reused with another request with a different
    request payload" (draft-ietf-httpapi-idempotency-key-header, 2.2).
    """
    key = case.headers.get("Idempotency-Key")
    if isinstance(key, str) and re.fullmatch("[!-~]([ -~]{0,253}[!-~])?", key):
        case.headers["Idempotency-Key"] = f"{RUN}-{next(NUMBERS)}"


def allow_any_version(case: Case) -> None:
    """A good If-Match becomes one that holds: which version is there only answers tell."""
    if is_good(case) and "If-Match" in case.headers:
        case.headers["If-Match"] = "*"


def keep_own_key(case: Case) -> None:
    """
    The key that the run itself has is never deleted or demoted: the API would do it, and then rightly answer 401 to
    everything (RFC 9110, 15.5.2). A key is taken that nobody has.
    """
    if unquote(str(case.path_parameters.get("key_id"))).lower() in OWN_KEY:
        case.path_parameters["key_id"] = "nobodys"


def fit_to_type(case: Case) -> None:
    """
    A good change of a connection becomes one for this connection's type. Which of the alternatives in ConnectionChange
    that is depends on the path, to which OpenAPI 3.1 can't relate a body (4.8.14: a Media Type Object's schema defines
    the content alone).
    """
    if not is_good(case) or not isinstance(case.body, dict) or not CONNECTIONS:
        return
    if connection_of(case) not in CONNECTIONS:
        # What is not there is 404, whatever the change; GET and DELETE try that.
        case.path_parameters["name"] = next(reversed(CONNECTIONS))
    type = CONNECTIONS[connection_of(case)]["type"]
    schemas = case.operation.schema.raw_schema["components"]["schemas"]
    schema = schemas[f"{type.capitalize()}ConnectionChange"]["properties"]
    own = [field for field in case.body if schema[field]["type"] != "null"]
    # What a record has beside its credentials may be repeated, not changed; they are tried in the tests of connections.
    case.body = {field: case.body[field] for field in own if field not in ("id", "name", "type", "created_at")}


def cancel_known(case: Case) -> None:
    """A good cancel is of a job that there is: a 404 shows nothing of it, and GET tries what is not there."""
    if is_good(case) and JOBS and unquote(str(case.path_parameters.get("id"))) not in JOBS:
        case.path_parameters["id"] = next(reversed(JOBS))


def end_in_future(case: Case) -> None:
    """JSON Schema knows no times that are to come: whatever comes from elsewhere, such as earlier answers, is put off."""
    if isinstance(case.body, dict) and str(case.body.get("expires_at")).startswith("20"):
        case.body["expires_at"] = "3" + case.body["expires_at"][1:]


def is_good(case: Case) -> bool:
    return case.meta is not None and case.meta.generation.mode.is_positive


# Refusals that depend on what no schema of a request describes. Each is known by its problem type and holds for no more.

BY_STATE = {
    # RFC 9110, 13.1.1: If-Match is about the version that is there, whatever the request.
    "precondition-failed": 412,
    # RFC 9110, 15.5.14: about the size of the content, before anybody has looked into it. JSON Schema counts characters
    # and items, no bytes.
    "too-large": 413,
}


@schemathesis.hook
def filter_failure(context: HookContext, failure: Failure, case: Case, response: Response) -> bool:
    if not isinstance(failure, RejectedPositiveData | AcceptedNegativeData) or response.status_code not in BY_STATE.values():
        return True
    name = response.json()["type"].rsplit("/", 1)[-1]
    return BY_STATE.get(name) != response.status_code
