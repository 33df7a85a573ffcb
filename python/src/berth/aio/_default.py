"""The functions of the module, which use a client that is made when it is first needed."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from .. import _async_runtime as runtime
from ._client import Client

P = ParamSpec("P")
R = TypeVar("R")

_clients: dict[object, Client] = {}
_turn = threading.Lock()


def default_client() -> Client:
    """Returns the client of the environment, or of the current context of the command `berth`."""
    scope = runtime.scope()
    with _turn:
        for old in [known for known in _clients if runtime.is_over(known)]:
            del _clients[old]
        if scope not in _clients:
            _clients[scope] = Client()
        return _clients[scope]


def _of_default(method: Callable[Concatenate[Client, P], R]) -> Callable[P, R]:
    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        return method(default_client(), *args, **kwargs)

    # Help and notebooks show it, without `self`.
    signature = inspect.signature(method)
    vars(call)["__signature__"] = signature.replace(parameters=list(signature.parameters.values())[1:])
    return call


run = _of_default(Client.run)
plan = _of_default(Client.plan)
map = _of_default(Client.map)
get = _of_default(Client.get)
jobs = _of_default(Client.jobs)
offers = _of_default(Client.offers)
