"""Run the command line as a person does: another process, its exit code and both streams."""

from __future__ import annotations

import ast
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from support import forkserver

STACKYARD = Path(sys.executable).with_name("stackyard")


@dataclass(frozen=True)
class Done:
    """What a command line left behind."""

    code: int
    out: str
    err: str

    @property
    def value(self) -> Any:
        """Standard output as JSON."""
        return json.loads(self.out)


def stackyard(
    *words: str | Path, expect: int | None = 0, timeout_s: float = 300, cwd: Path | None = None, **variables: str
) -> Done:
    """Run ``stackyard WORDS...`` in `cwd`; any other exit code than `expect` fails the test with all that was shown."""
    environ = {**os.environ, **variables}
    done = _forked if forkserver.IS_WANTED and not forkserver.needs_a_start(environ) else _started
    found = done([str(word) for word in words], environ, cwd, timeout_s)
    assert expect is None or found.code == expect, f"exit {found.code}\n{found.out}\n{found.err}"
    return found


def _forked(words: list[str], environ: dict[str, str], cwd: Path | None, timeout_s: float) -> Done:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        code = forkserver.run(words, environ, cwd, (out, err), timeout_s)
        shown = [stream.read().decode("utf-8") for stream in (out, err) if not stream.seek(0)]
    return Done(code, *shown)


def _started(words: list[str], environ: dict[str, str], cwd: Path | None, timeout_s: float) -> Done:
    argv = [str(STACKYARD), *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=timeout_s, cwd=cwd, env=environ)
    return Done(done.returncode, done.stdout, done.stderr)


def inside(*words: str | Path, expect: int | None = 0, **variables: str) -> Done:
    """The same in this process, which saves the second in which Python starts and imports. For many small steps."""
    from stackyard.cli import main
    from stackyard.yard.write import atomic

    atomic._hits.clear()  # a fault point is counted from the beginning of a command
    out, err = io.StringIO(), io.StringIO()
    argv = [str(STACKYARD), *map(str, words)]
    environ, said = mock.patch.dict(os.environ, variables), mock.patch.object(sys, "argv", argv)
    with environ, said, redirect_stdout(out), redirect_stderr(err):
        try:
            main._run()
        except SystemExit as leaving:
            code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    done = Done(code, out.getvalue(), err.getvalue())
    assert expect is None or done.code == expect, f"exit {done.code}\n{done.out}\n{done.err}"
    return done


def warm(new: Path, of: Path) -> Path:
    """A new yard with the package cache of another: Python is not unpacked and compiled again, which takes seconds."""
    shutil.copytree(of / "cache", new / "cache", symlinks=True)
    return new


def imported(*words: str | Path, among: tuple[str, ...]) -> list[str]:
    """Which of these modules a command line imports."""
    code = (
        "import sys\nfrom stackyard.cli.main import cli\nsys.argv[0] = 'stackyard'\n"
        f"try:\n    cli.main(standalone_mode=False)\nfinally:\n    print([m for m in {among!r} if m in sys.modules])\n"
    )
    argv = [sys.executable, "-c", code, *map(str, words)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    return list(ast.literal_eval(done.stdout.splitlines()[-1]))
