"""A gateway for other programs' downloads that need a login, so that they never see it.

uv and git write the URLs that they are given into caches, metadata, messages and the argument lists of their helpers;
every user of the machine can read some of these. Where an address is protected (`core.secrets`), they get its alias,
``http://<server>-<hash>.stackyard.invalid/...``, and this process as their proxy for ``http``: a server on the loopback
interface that adds what is missing and passes everything on through `host.net.http`. rattler gets the same server as a
mirror of the channel. Other users cannot use it: it answers only to a password that is made at its start and that
programs get in their environment, which only their owner can read.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from stackyard.core import secrets
from stackyard.host.net.trust import PLAIN, Trust

if TYPE_CHECKING:
    from stackyard.host.net.gatewayserver import Gateway


def alias(url: str, trust: Trust | None = None) -> str:
    """The URL to give another program: an alias, served from now on, if the address is protected; else its URL."""
    name = secrets.alias(url)
    if _host(name):
        _running().trust[_host(name)] = trust or PLAIN
    return name


def in_text(text: str) -> str:
    """A requirement line with the alias of every URL in it."""
    url = r"[A-Za-z+]*https?://[^\s,'\"]+?(?=;?(?:[\s,'\"]|$))"
    return re.sub(url, lambda match: alias(secrets.address(match.group())), text)


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment variables, on top of `environ`, with which another program reaches the aliases.

    git also gets the aliases in place of the real URLs, for submodules.
    """
    if _gateway is None:
        return {}
    proxy = _gateway.proxy
    result = {"http_proxy": proxy, "HTTP_PROXY": proxy}
    for name in ("NO_PROXY", "no_proxy"):  # `*` would leave out this proxy as well
        if "*" in environ.get(name, "").split(","):
            result |= {name: "", "HTTPS_PROXY": "", "https_proxy": "", "ALL_PROXY": "", "all_proxy": ""}
    return {**result, **_git_variables(environ)}


def _git_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Settings for every server that has an alias, after git's own in the environment: the alias for its URL, and this
    process as the proxy of the alias, whatever proxy the user's git has."""
    assert _gateway is not None
    settings: list[tuple[str, str]] = []
    for origin, name in secrets.aliases().items():
        settings += [(f"url.{name}/.insteadOf", f"{origin}/"), (f"http.{name}/.proxy", _gateway.proxy)]
    count = int(environ.get("GIT_CONFIG_COUNT") or 0)
    result = {"GIT_CONFIG_COUNT": str(count + len(settings))}
    for number, (key, value) in enumerate(settings, count):
        result |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return result


def mirror(url: str) -> str:
    """This process's URL for a protected address, for a program that accepts a mirror."""
    name = alias(url)
    assert _gateway is not None and _host(name)
    return f"{_gateway.mirrors}/{name.removeprefix('http://')}"


def _host(url: str) -> str:
    """The host name of an alias; empty for any other URL."""
    host = urlsplit(url).hostname or ""
    return host if secrets.origin_of(host) else ""


_gateway: Gateway | None = None
_starting = threading.Lock()


def _running() -> Gateway:
    global _gateway  # noqa: PLW0603 - one for the process
    with _starting:
        if _gateway is None:
            from stackyard.host.net.gatewayserver import Gateway  # late: most files name no protected address

            _gateway = Gateway()
        return _gateway
