"""Requests to the API: credential, retries and errors."""

from __future__ import annotations

import itertools
import logging
import math
import random
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Protocol, TypeVar

import httpx

from .. import _async_runtime as runtime
from .._api.errors import UnexpectedStatus
from .._built import __version__
from .._context import Context
from .._errors import ApiError, Error, SignedOut, TooManyRequests, Unavailable, error_of
from .._retry import Attempt, retry_delay
from .._sign_in import is_renewal_due, renew


class Page(Protocol):
    """Part of a list."""

    total: int


T = TypeVar("T")
P = TypeVar("P", bound=Page)
Item = TypeVar("Item")
log = logging.getLogger("berth")

#: Largest page that every list of the API returns.
_PAGE_SIZE = 100
#: A log that gives nothing for this time is opened again, seconds.
_SILENCE_SECONDS = 300
#: Delay between two reads while the API can't be reached, seconds.
_OUTAGE_SECONDS = 2


class Connection:
    """Way to the API of one project. All threads, or all tasks of a loop, may share it."""

    def __init__(self, context: Context, patience: float, outage: float) -> None:
        """`patience`: longest time that a request is retried for; `outage`: the same for waits and followed logs; seconds."""
        self.context = context
        self._patience = patience
        self._outage = outage
        self._sign_in = context.sign_in
        self._renewal = runtime.Lock()
        # A redirect could carry the credential to another host.
        self._http = httpx.AsyncClient(
            base_url=context.base_url,
            follow_redirects=False,
            timeout=httpx.Timeout(60, connect=15, pool=None),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=50),
            headers={"User-Agent": f"berth-python/{__version__}"},
        )

    async def close(self) -> None:
        """Closes all connections."""
        await self._http.aclose()

    async def call(
        self, request: Mapping[str, Any], answer: Callable[[httpx.Response], T], until: float | None = None
    ) -> T:
        """Sends a request of the generated client, and returns the body of its answer. With `until` as in `steadily`."""
        response = await self.send(request) if until is None else await self.steadily(request, until)
        try:
            return answer(response)
        except (UnexpectedStatus, KeyError, TypeError, ValueError) as error:
            raise Error(
                f"{self.context.url} gave an answer that berth-jobs {__version__} can't read ({error!r}). "
                "Install the version of berth-jobs that the API has."
            ) from error

    async def send(self, request: Mapping[str, Any], stream: bool = False, until: float = math.inf) -> httpx.Response:
        """
        Sends a request, and repeats it after a temporary failure, but not after `until` on the monotonic clock. It also
        repeats it once with a renewed token if the API rejects the present one. Each POST has one Idempotency-Key for all
        its tries, so a repetition creates nothing twice. With `stream` the caller reads the body and closes the response.
        """
        method, headers = str(request["method"]).upper(), dict(request.get("headers") or {})
        if method == "POST":
            headers.setdefault("Idempotency-Key", uuid.uuid4().hex)
        parts = {name: request[name] for name in ("params", "json", "content") if name in request}
        # A log may be silent for long.
        timeout = httpx.Timeout(60, connect=15, pool=None, read=_SILENCE_SECONDS if stream else 60)
        began = time.monotonic()
        patience = min(self._patience, until - began)
        rejected: str | None = None
        for count in itertools.count(1):
            credential = await self._credential(rejected)
            built = self._http.build_request(
                method, request["url"], headers={**headers, **credential}, timeout=timeout, **parts
            )
            response, failure = None, None
            try:
                response = await self._http.send(built, stream=stream)
                if response.is_success:
                    return self._checked(response)
                await response.aread()
            except httpx.TransportError as error:
                failure, response = error, None
            finally:
                if response is not None and not response.is_success:
                    await response.aclose()
            status = None if response is None else response.status_code
            if status == 401 and rejected is None and self.context.key is None:
                rejected = credential["Authorization"].removeprefix("Bearer ")
                if await self._credential(rejected) != credential:
                    continue
            retry_after = None if response is None else response.headers.get("retry-after")
            spent = time.monotonic() - began
            attempt = Attempt(method, "Idempotency-Key" in headers, status, retry_after, count, spent, patience)
            delay = retry_delay(attempt, time.time(), random.random())
            if delay is None:
                raise self._error(response, failure)
            log.info("%s; the request is sent again in %.1f s", self._error(response, failure), delay)
            await runtime.sleep(delay)
        raise AssertionError("attempts have an end")

    async def items(
        self,
        page_of: Callable[..., Mapping[str, Any]],
        answer: Callable[[httpx.Response], P],
        items_of: Callable[[P], list[Item]],
        limit: float = math.inf,
    ) -> AsyncIterator[Item]:
        """Gives the items of all pages, at most `limit`."""
        offset = 0
        while offset < limit:
            page = await self.call(page_of(limit=int(min(_PAGE_SIZE, limit - offset)), offset=offset), answer)
            items = items_of(page)
            for item in items:
                yield item
            offset += len(items)
            if not items or offset >= page.total:
                return

    async def steadily(self, request: Mapping[str, Any], until: float, stream: bool = False) -> httpx.Response:
        """
        Sends a request that only reads, also through an outage of the API: again and again for as long as the client
        allows, but not after `until` on the monotonic clock.
        """
        began: float | None = None
        while True:
            try:
                return await self.send(request, stream, until)
            except (Unavailable, TooManyRequests) as error:
                now = time.monotonic()
                if began is None:
                    began = now
                    log.warning(
                        "%s. Jobs run on meanwhile; this waits for the API for up to %.0f s.", error, self._outage
                    )
                if now - began > self._outage or now > until:
                    raise
            await runtime.sleep(_OUTAGE_SECONDS)

    def _checked(self, response: httpx.Response) -> httpx.Response:
        """Returns the response. Raises Error for a page: no operation answers with one."""
        if response.headers.get("content-type", "").startswith("text/html"):
            raise Error(f"{self.context.base_url} answered with a page for browsers, and is no API of Berth")
        return response

    def _error(self, response: httpx.Response | None, failure: httpx.TransportError | None) -> ApiError:
        if response is None:
            return Unavailable(
                503, {"detail": f"{self.context.url} can't be reached: {str(failure) or type(failure).__name__}"}
            )
        is_problem = response.headers.get("content-type", "").startswith("application/problem+json")
        problem = _json_object(response) if is_problem else {}
        error = error_of(response.status_code, problem, self.context.url)
        if response.status_code == 401 and self.context.key is None:
            return SignedOut(f"{error} Run `berth login`.")
        return error

    async def _credential(self, rejected: str | None = None) -> dict[str, str]:
        """Returns the header of the present credential. A token that ends soon, or was rejected, is renewed first."""
        if self.context.key is not None:
            return {"X-Service-Api-Key": self.context.key}
        if self._sign_in is None:
            raise SignedOut("The context has no credential. Run `berth login`.")
        if is_renewal_due(self._sign_in, rejected):
            async with self._renewal:
                if is_renewal_due(self._sign_in, rejected):
                    self._sign_in = await runtime.in_thread(lambda: renew(self.context, rejected))
        return {"Authorization": f"Bearer {self._sign_in['accessToken']}"}


def _json_object(response: httpx.Response) -> dict[str, Any]:
    """Returns the JSON object of a body; empty for any other body."""
    try:
        content = response.json()
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}
