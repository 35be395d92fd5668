"""The one door to uv: the program, its environment and options, and the meaning of its failures."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from stackyard.core import secrets
from stackyard.core.errors import MissingError, StackyardError
from stackyard.host.net import gateway
from stackyard.host.net.trust import LOGIN_HINT, Trust
from stackyard.host.run import command
from stackyard.host.tools.pipconf import PipSettings

_KEPT = ("UV_CONCURRENT_DOWNLOADS", "UV_CONCURRENT_BUILDS", "UV_HTTP_TIMEOUT", "UV_OFFLINE", "UV_SYSTEM_CERTS",
         "UV_NATIVE_TLS", "UV_KEYRING_PROVIDER", "UV_PYTHON_INSTALL_DIR", "UV_PYTHON_INSTALL_MIRROR")  # fmt: skip


def program() -> Path:
    """The uv program: the one installed with this Python, else the one on PATH. Raises MissingError without one."""
    beside = Path(sys.executable).with_name("uv")
    path = beside if beside.exists() else command.which("uv")
    if path is None:
        raise MissingError("uv not found on PATH", hint="pip install uv")
    return path


def environment(settings: PipSettings | None = None) -> dict[str, str]:
    """This process's environment for uv: without ``UV_*`` that would change a result, with pip's network settings."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("UV_") or k in _KEPT}
    env["UV_NO_CONFIG"] = "1"
    env["UV_PYTHON_DOWNLOADS"] = "never"
    env["UV_LINK_MODE"] = "copy"  # what is compiled runs as a program; it must not hold links into the cache
    env["COLUMNS"] = "100000"  # uv folds its reasons at this width, and they are read line by line
    if settings is not None:
        env |= _network(settings)
        index_options(settings)  # the servers of all indexes have their aliases from here on
    return env | gateway.variables(env)


def _network(settings: PipSettings) -> dict[str, str]:
    env = {
        "SSL_CERT_FILE": settings.cert,
        "SSL_CLIENT_CERT": settings.client_cert,
        "UV_HTTP_TIMEOUT": str(settings.timeout_s or ""),
        **dict.fromkeys(("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"), settings.proxy),
    }
    return {name: value for name, value in env.items() if value}


def index_options(settings: PipSettings) -> list[str]:
    """The options for the sources of packages; among several indexes the best version counts, as in pip."""
    links = [f"--find-links={place_for_uv(place, settings)}" for place in settings.find_links]
    if settings.no_index or not settings.indexes:
        return [*links, "--no-index", *host_options(settings)]
    *others, main = (place_for_uv(url, settings) for url in settings.indexes)
    strategy = ["--index-strategy=unsafe-best-match"] if others else []
    indexes = [*(f"--index={url}" for url in others), f"--default-index={main}"]
    return [*links, *indexes, *strategy, *host_options(settings)]


def place_for_uv(url: str, settings: PipSettings) -> str:
    """The URL of an index, a page of links or a file for uv: an alias if it needs a login or a token."""
    return gateway.alias(url, trust(url, settings))


def trust(url: str, settings: PipSettings) -> Trust:
    """The connection settings for an address, from pip's configuration."""
    host = secrets.host_of(url)
    insecure = any(host in (name, name.rpartition(":")[0]) for name in settings.trusted_hosts)
    return Trust(settings.cert, settings.client_cert, insecure, settings.proxy)


def host_options(settings: PipSettings) -> list[str]:
    """The options for hosts whose certificate is not checked."""
    return [f"--allow-insecure-host={host}" for host in settings.trusted_hosts]


def run(
    words: Sequence[str | os.PathLike[str]],
    settings: PipSettings | None = None,
    *,
    timeout_s: float,
    extra: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    check: bool = False,
    watch: Callable[[], object] = lambda: None,
) -> command.Result:
    """Run ``uv WORDS`` to its end.

    Args:
        extra: variables on top of `environment`.
        check: raise CommandError where uv exits with a status other than 0.
        watch: as for `command.run`.
    """
    env = {**environment(settings), **(extra or {})}
    result = command.run([program(), *words], env=env, cwd=cwd, timeout_s=timeout_s, check=check, watch=watch)
    return replace(result, stdout=secrets.written(result.stdout), stderr=secrets.written(result.stderr))


def messages(result: command.Result) -> str:
    """uv's messages: its stderr without log lines."""
    lines = (line for line in result.stderr.splitlines() if not re.match(r"(DEBUG|TRACE|INFO) ", line))
    return "\n".join(lines).strip()


def failure(result: command.Result, what: str) -> StackyardError:
    """The error for a failed run: `what` with uv's first cause; all messages, without secrets, are the detail."""
    lines = [line for line in messages(result).splitlines() if "does not contain any dependencies" not in line]
    text = secrets.redacted("\n".join(lines).strip())
    first = next((line for line in text.splitlines() if line.startswith("error: ")), text).removeprefix("error: ")
    fatal = re.search(r"^\s*fatal: (.+?)\.?$", text, re.MULTILINE)  # git's own reason
    because = f" ({fatal.group(1)})" if fatal else ""
    return StackyardError(f"{what}: {first}{because}", detail=text, hint=LOGIN_HINT if refused(text) else None)


def refused(output: str) -> bool:
    """Whether a server demanded a login, according to the output of uv or git."""
    words = r"\b40[13] (Unauthorized|Forbidden)|error: 40[13]|could not read Username|Authentication failed"
    return re.search(words, output) is not None
