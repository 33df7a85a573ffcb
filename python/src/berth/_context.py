"""Contexts of the command `berth`: where calls go, and with which credential. src/cli/context.ts has the same rules."""

from __future__ import annotations

import json
import os
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from ._errors import SignedOut


@dataclass(frozen=True)
class Context:
    """A Berth, and the credential for it."""

    #: URL without `/1`.
    url: str
    #: Project in `/projects/<id>/1`; None if the host of the URL is the project's own.
    project: str | None = None
    key: str | None = field(default=None, repr=False)
    #: Tokens of a person, as the configuration has them.
    sign_in: Mapping[str, str] | None = field(default=None, repr=False)
    #: Name in the configuration; None for the environment or the arguments of a Client.
    name: str | None = None

    @property
    def base_url(self) -> str:
        """URL of the project's operations, up to `/1`."""
        return f"{self.url}/1" if self.project is None else f"{self.url}/projects/{quote(self.project, safe='')}/1"


def choose_context(
    context: str | None = None, url: str | None = None, api_key: str | None = None, project: str | None = None
) -> Context:
    """
    Returns the context of a client. Arguments come first, then BERTH_URL with BERTH_API_KEY or BERTH_TOKEN, then the
    named or current context of the command line. Raises SignedOut if there is none, ValueError for a contradiction.
    """
    chosen = _of_arguments(url, api_key, context) or _of_environment(context) or _of_config(context)
    return chosen if project is None else replace(chosen, project=project)


def _of_arguments(url: str | None, api_key: str | None, context: str | None) -> Context | None:
    if url is None and api_key is None:
        return None
    if url is None or api_key is None or context is not None:
        raise ValueError("url and api_key belong together, without context: give both, or neither.")
    return Context(parse_url(url), key=api_key)


def _of_environment(context: str | None) -> Context | None:
    url, key, token, project = (os.environ.get(f"BERTH_{name}") for name in ("URL", "API_KEY", "TOKEN", "PROJECT"))
    if not url or not (key or token):
        return None
    if context is not None:
        raise ValueError(
            f"BERTH_URL is set, and it comes before the context {context}. Unset BERTH_URL, or omit context."
        )
    sign_in = None if key or not token else {"accessToken": token}
    return Context(parse_url(url), project or None, key or None, sign_in)


def _of_config(name: str | None) -> Context:
    config = read_config()
    name = name or config.get("current")
    contexts = config.get("contexts") or {}
    if name is None:
        raise SignedOut("There is no context. Run `berth login URL`, or set BERTH_URL and BERTH_API_KEY.")
    if name not in contexts:
        known = ", ".join(contexts) or "none"
        raise SignedOut(f"There is no context {name}; known: {known}. `berth login URL` creates one.")
    found = contexts[name]
    return Context(found["url"], found.get("project"), found.get("key"), found.get("signIn"), name)


def parse_url(text: str) -> str:
    """Returns a URL without a trailing `/` or `/1`. Raises ValueError if it isn't a URL of HTTP."""
    full = text if text.startswith(("http://", "https://")) else f"https://{text}"
    if not urlsplit(full).hostname:
        raise ValueError(f"{text} is no URL, such as https://berth.example.com")
    full = full.rstrip("/")
    return full[:-2] if full.endswith("/1") else full


def config_path() -> Path:
    """Returns the path of the configuration file."""
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return Path(home, "berth", "config.json")


def read_config() -> dict[str, Any]:
    """Returns the content of the configuration file; empty if there is none. Raises SignedOut if it is no JSON."""
    path = config_path()
    try:
        text = path.read_text(encoding="utf-8")
        # An editor or a copy may have made it readable for others.
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            path.chmod(0o600)
    except FileNotFoundError:
        return {}
    try:
        content = json.loads(text)
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise SignedOut(f"{path} is no JSON: correct or delete it, then run `berth login`.")
    return content


def stored_sign_in(context: Context) -> Mapping[str, str] | None:
    """Returns the tokens that the configuration has now; None: the person has signed out."""
    if context.name is None:
        return context.sign_in
    stored: dict[str, Any] = (read_config().get("contexts") or {}).get(context.name) or {}
    return stored.get("signIn")


def store_sign_in(name: str, sign_in: Mapping[str, str]) -> None:
    """Replaces the tokens of a context, so that no reader sees a part of the file."""
    config, path = read_config(), config_path()
    contexts = config.get("contexts") or {}
    if name not in contexts:
        return
    contexts[name]["signIn"] = dict(sign_in)
    # The file that this makes has the mode 0600.
    handle, scratch = tempfile.mkstemp(prefix=f"{path.name}.", dir=path.parent)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(config, file, indent=2)
        file.write("\n")
    os.replace(scratch, path)
