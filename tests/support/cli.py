"""Run the command line as a person does: another process, its exit code and both streams."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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


def stackyard(*words: str | Path, expect: int | None = 0, timeout_s: float = 300, **variables: str) -> Done:
    """Run ``stackyard WORDS...``; any other exit code than `expect` fails the test with all that was printed."""
    done = subprocess.run(
        [STACKYARD, *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
        env={**os.environ, **variables},
    )
    assert expect is None or done.returncode == expect, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return Done(done.returncode, done.stdout, done.stderr)
