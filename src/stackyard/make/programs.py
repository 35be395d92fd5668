"""Runs other programs for the build: in a defined environment, with their output in the log."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from stackyard.core.errors import StackyardError
from stackyard.core.secrets import redacted
from stackyard.host.files import space
from stackyard.host.net.trust import LOGIN_HINT
from stackyard.host.run import command
from stackyard.host.run.view import PLAIN, View
from stackyard.host.tools import uv
from stackyard.yard import disk

Argv = list[str | os.PathLike[str]]
"""The words of a command line."""

_CAUSE = re.compile(
    r"error:|fatal error|#error|CMake Error|undefined reference|No such file|command not found|Could not find", re.I
)
_CAUSE_LINES, _TAIL_LINES = 15, 25

_EPOCH = "315532800"  # 1980-01-01, the oldest time that a zip file can hold
PROXIES = (
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy",
)  # fmt: skip
"""The variables by which programs are told of a proxy; some read one form, some the other."""
_PASSED_TO_BUILDS = (
    *PROXIES, "SSL_CERT_FILE", "SSL_CERT_DIR", "SSL_CLIENT_CERT", "NETRC", "UV_HTTP_TIMEOUT", "UV_NATIVE_TLS",
    "UV_SYSTEM_CERTS", "UV_CACHE_DIR", "UV_LINK_MODE",
)  # fmt: skip


def build_environment(path: Sequence[str], network: Mapping[str, str]) -> dict[str, str]:
    """The small environment in which source is compiled: a search path, and uv's network settings.

    Args:
        path: directories and search paths; the first one wins.
        network: an environment for uv (`indexes.environment`); only its network settings are used.
    """
    passed = {k: v for k, v in network.items() if k in _PASSED_TO_BUILDS}
    fixed = {"UV_NO_CONFIG": "1", "UV_NO_PROGRESS": "1", "PYTHONDONTWRITEBYTECODE": "1", "SOURCE_DATE_EPOCH": _EPOCH}
    return {**command.clean_environment(**passed), **fixed, "PATH": os.pathsep.join(path)}


class FailedError(StackyardError):
    """A program ended with a status other than 0; `output` is all that it printed."""

    def __init__(self, message: str, output: str, *, hint: str, detail: str) -> None:
        super().__init__(message, hint=hint, detail=detail)
        self.output = output


def run(
    argv: Sequence[str | os.PathLike[str]],
    *,
    what: str,
    log: Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout_s: float = 3600,
    stdin: str | None = None,
    check: bool = True,
    hint: str = "",
    view: View = PLAIN,
    watch: Callable[[], object] = lambda: None,
) -> command.Result:
    """Run a program; its output goes to `log`.

    Args:
        what: the step in words, for the error: "compiling horovod 0.28.1".
        view: the program's view of the files.
        watch: as for `command.run`.

    Raises:
        StackyardError: it failed (with `check`, or because the disk is full); the message names the step, the detail
            has the relevant part of the output.
    """
    try:
        result = command.run(
            argv, env=env, cwd=cwd, timeout_s=timeout_s, stdin=stdin, check=False, log=log, view=view, watch=watch
        )
    except command.CommandError as error:
        text = f"{what} timed out after {timeout_s:g} s"
        raise StackyardError(text, hint=_see(log), detail=error.detail) from error
    if result.returncode != 0 and space.says_full(result.output):
        raise disk.no_space(what)
    if check and result.returncode != 0:
        raise FailedError(
            f"{what} failed: {Path(argv[0]).name} {command.ending(result.returncode)}",
            result.output,
            hint="; ".join(text for text in (LOGIN_HINT if uv.refused(result.output) else hint, _see(log)) if text),
            detail=telling(redacted(result.output)),
        )
    return result


def telling(output: str) -> str:
    """The relevant part of a failed program's output: the first errors with a line of context, then the end.

    A parallel compilation prints thousands of lines after its first error, so the end alone is not enough.
    """
    lines = output.splitlines()
    end = max(len(lines) - _TAIL_LINES, 0)
    shown: list[int] = []
    for number in (n for n in range(end) if _CAUSE.search(lines[n])):
        context = [n for n in range(max(number - 1, 0), min(number + 2, end)) if n not in shown]
        if len(shown) + len(context) > _CAUSE_LINES:
            break
        shown += context
    numbers = [*shown, *range(end, len(lines))]
    parts: list[str] = []
    for before, number in zip([-1, *numbers], numbers, strict=False):
        left_out = number - before - 1
        parts += [f"... {left_out} lines ...", lines[number]] if left_out else [lines[number]]
    return "\n".join(parts)


def _see(log: Path) -> str:
    return f"see the whole output in {log}"
