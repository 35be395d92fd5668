"""The one door to subprocesses: argv lists only, time limits everywhere, output kept and shown when a program fails."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from stackyard.core.errors import MissingError, StackyardError
from stackyard.core.late import dataclass
from stackyard.core.secrets import redacted
from stackyard.host.run.running import RunningProgram
from stackyard.host.run.view import PLAIN, View

GUARDED_FROM_S = 60.0
"""A program with this time limit or a longer one is ended when this process is killed; a shorter one ends by itself."""


@dataclass(frozen=True)
class Result:
    """The result of a finished program. Output is decoded as UTF-8 with replacement."""

    argv: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str
    seconds: float

    @property
    def output(self) -> str:
        """Both streams, stderr last, for display."""
        return "\n".join(part for part in (self.stdout.rstrip(), self.stderr.rstrip()) if part)


class CommandError(StackyardError):
    """A program that exited with a status other than 0, or that timed out."""

    def __init__(self, message: str, result: Result, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint, detail=tail(result.output))
        self.result = result


def run(
    argv: Sequence[str | os.PathLike[str]],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout_s: float = 600,
    stdin: str | None = None,
    check: bool = True,
    log: Path | None = None,
    view: View = PLAIN,
    leaves_others: bool = False,
    watch: Callable[[], object] = lambda: None,
) -> Result:
    """Run a program to its end, in a session of its own.

    On a timeout, an interrupt, or when this process is killed, it ends with all that it has started
    (`host.run.running`). With a time limit below `GUARDED_FROM_S`, or `leaves_others`, processes that left its session
    (setsid(2)) continue.

    Args:
        env: the complete environment of the child; None passes this process's own.
        timeout_s: seconds until it is killed.
        check: raise `CommandError` if the program exits with a status other than 0.
        log: a file to which the command line and its output are appended, without secrets.
        view: the program's view of the files.
        leaves_others: what it has started may go on after its end, as that of a scheduler's client may.
        watch: called several times a second while it runs; it ends with what this raises.

    Raises:
        MissingError: the program does not exist.
        CommandError: it failed (with `check`), or timed out (always).
    """
    words = tuple(os.fspath(word) for word in argv)
    started = time.monotonic()
    try:
        if view.readonly and "/" not in words[0] and which(words[0], env) is None:
            raise FileNotFoundError(words[0])
        guarded = timeout_s >= GUARDED_FROM_S and not leaves_others
        running = RunningProgram(words, env, cwd, stdin, guarded=guarded, view=view)
        out, err, timed_out = running.finish(started + timeout_s, watch)
    except OSError as error:
        raise cannot_start(words, cwd, error) from error
    result = Result(words, running.returncode, out, err, time.monotonic() - started)
    if log is not None:
        _append(log, result)
    if timed_out:
        raise CommandError(f"{shlex.join(words[:4])} timed out after {timeout_s:g} s", result)
    if check and result.returncode != 0:
        raise CommandError(f"{shlex.join(words[:4])} {ending(result.returncode)}", result)
    return result


def ending(returncode: int) -> str:
    """The end of a program for messages: its exit status, or the signal that killed it."""
    if returncode >= 0:
        return f"exited with status {returncode}"
    try:
        return f"killed by signal {-returncode} ({signal.Signals(-returncode).name})"
    except ValueError:  # a real-time signal has no name
        return f"killed by signal {-returncode}"


def cannot_start(words: Sequence[str], cwd: Path | None, error: OSError) -> StackyardError:
    """The error for a program that failed to start."""
    if isinstance(error, FileNotFoundError):
        if cwd is not None and not cwd.is_dir():
            return StackyardError(f"cannot run {words[0]}: no such directory: {cwd}")
        return MissingError(f"{words[0]} not found on PATH")
    if isinstance(error, PermissionError):
        return StackyardError(f"permission denied: {words[0]} is not executable")
    return StackyardError(f"cannot run {shlex.join(words[:4])}: {error.strerror}")


def which(name: str, environ: Mapping[str, str] | None = None) -> Path | None:
    """The absolute path of a program on PATH (of `environ`, if given), or None."""
    path = shutil.which(name, path=None if environ is None else environ.get("PATH", ""))
    return Path(path).absolute() if path else None


def clean_environment(**extra: str) -> dict[str, str]:
    """A small environment that does not depend on the caller's shell: HOME, USER, LANG and the system's PATH."""
    keep = {k: os.environ[k] for k in ("HOME", "USER", "LOGNAME", "TMPDIR", "SSL_CERT_FILE") if k in os.environ}
    return {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", **keep, **extra}


def _append(log: Path, result: Result) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    text = f"$ {shlex.join(result.argv)}\n{result.output}\n[{result.returncode}, {result.seconds:.1f} s]\n"
    with log.open("a", encoding="utf-8") as stream:
        stream.write(redacted(text))


def tail(text: str, lines: int = 40) -> str:
    """The last lines of an output, after the number of omitted ones."""
    all_lines = text.splitlines()
    if len(all_lines) <= lines:
        return text
    return "\n".join([f"... {len(all_lines) - lines} lines above ...", *all_lines[-lines:]])
