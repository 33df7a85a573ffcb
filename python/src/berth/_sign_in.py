"""Renewal of a person's tokens, as src/cli/sign-in.ts does it for the command line."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta, timezone
from typing import Any
from urllib.parse import urlsplit

import httpx

from ._context import Context, config_path, store_sign_in, stored_sign_in
from ._errors import SignedOut, Unavailable

#: A token that ends within this time is renewed first, seconds.
_RENEWED_BEFORE_SECONDS = 30

#: Age at which a turn counts as left by a dead process, seconds. A renewal takes less. The command line has the same.
_TURN_SECONDS = 60

#: Pause before the next try to take the turn, seconds.
_TURN_PAUSE_SECONDS = 0.05


def is_renewal_due(sign_in: Mapping[str, str], rejected: str | None = None) -> bool:
    """Returns true if the token ends soon, or is the one that the API has rejected, and can be renewed."""
    if "refreshToken" not in sign_in:
        return False
    if sign_in.get("accessToken") == rejected:
        return True
    expires_at = sign_in.get("expiresAt")
    if expires_at is None:
        return False
    left = datetime.fromisoformat(expires_at.replace("Z", "+00:00")) - datetime.now(timezone.utc)
    return left.total_seconds() <= _RENEWED_BEFORE_SECONDS


def renew(context: Context, rejected: str | None = None) -> Mapping[str, str]:
    """
    Returns the tokens of a context after a renewal, which it stores for the command line too. Another process may have
    renewed them already. It blocks also in asyncio, where it has a thread of its own: a loop that something else blocks
    must not keep the lock. Raises SignedOut, and Unavailable for an issuer that can't be reached.
    """
    with _turn():
        old = stored_sign_in(context)
        if old is None:
            raise SignedOut("You have signed out. Run `berth login`.")
        if not is_renewal_due(old, rejected):
            return old
        try:
            fresh = _renewed(old, _refreshed_tokens(old))
        except httpx.TransportError as error:
            raise Unavailable(503, {"detail": f"The issuer {old['issuer']} can't be reached: {error}"}) from None
        except (KeyError, ValueError) as error:
            raise SignedOut(f"Your sign-in has ended, and can't be renewed ({error}). Run `berth login`.") from None
        if context.name is not None:
            store_sign_in(context.name, fresh)
        return fresh


@contextmanager
def _turn() -> Iterator[None]:
    """
    Lets one process at a time renew tokens, of this package or the command line: issuers revoke all of them if a refresh
    token is used twice. The turn is a folder beside the configuration: of all that try, one creates it.
    """
    turn = f"{config_path()}.turn"
    while not _take_turn(turn):
        time.sleep(_TURN_PAUSE_SECONDS)
    try:
        yield
    finally:
        _leave(turn)


def _take_turn(turn: str) -> bool:
    """Takes the turn. Returns false while another process has it. Removes a turn that a dead process has left."""
    try:
        os.mkdir(turn)
    except FileExistsError:
        with suppress(FileNotFoundError):
            if time.time() - os.stat(turn).st_mtime > _TURN_SECONDS:
                _leave(turn)
        return False
    return True


def _leave(turn: str) -> None:
    with suppress(FileNotFoundError):
        os.rmdir(turn)


def _refreshed_tokens(sign_in: Mapping[str, str]) -> dict[str, Any]:
    """Returns the answer of the issuer's token endpoint. Raises ValueError with the issuer's reason."""
    issuer = sign_in["issuer"]
    form = {"grant_type": "refresh_token", "refresh_token": sign_in["refreshToken"], "client_id": sign_in["clientId"]}
    if "resource" in sign_in:
        form["resource"] = sign_in["resource"]
    with httpx.Client(timeout=10) as http:
        found = _json_of(http.get(f"{issuer.rstrip('/')}/.well-known/openid-configuration"))
        endpoint = str(found.get("token_endpoint") or "")
        if found.get("issuer") != issuer or not _is_safe(endpoint):
            raise ValueError(f"{issuer} has no description of itself")
        tokens = _json_of(http.post(endpoint, data=form))
    if "access_token" not in tokens:
        raise ValueError(": ".join(str(tokens[name]) for name in ("error", "error_description") if name in tokens))
    return tokens


def _json_of(response: httpx.Response) -> dict[str, Any]:
    """Returns the JSON object of a body; empty for any other body. Raises TransportError if a later try may succeed."""
    if response.status_code == 429 or response.status_code >= 500:
        raise httpx.TransportError(f"it answered {response.status_code}")
    try:
        content = response.json()
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _is_safe(url: str) -> bool:
    """Returns true if a token may be sent there: by TLS, or to this machine."""
    parts = urlsplit(url)
    return parts.scheme == "https" or parts.hostname in ("127.0.0.1", "::1", "localhost")


def _renewed(sign_in: Mapping[str, str], tokens: Mapping[str, Any]) -> dict[str, str]:
    """Returns the sign-in after an answer of the issuer's token endpoint."""
    fresh = {**sign_in, "accessToken": str(tokens["access_token"])}
    fresh.pop("expiresAt", None)
    if "refresh_token" in tokens:
        fresh["refreshToken"] = str(tokens["refresh_token"])
    if "expires_in" in tokens:
        end = datetime.now(timezone.utc) + timedelta(seconds=float(tokens["expires_in"]))
        fresh["expiresAt"] = end.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return fresh
