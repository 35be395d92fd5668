"""The one way to run programs: what a result is, and what its failures are called."""

from __future__ import annotations

from pathlib import Path

import pytest

from stackyard.errors import MissingError, StackyardError
from stackyard.host.command import CommandError, run


def test_a_result_has_both_streams(tmp_path: Path) -> None:
    result = run(["sh", "-c", "echo out; echo err >&2; exit 3"], check=False, log=tmp_path / "deep/log")
    assert (result.returncode, result.output) == (3, "out\nerr")
    assert (tmp_path / "deep/log").read_text().startswith("$ sh -c ")


@pytest.mark.parametrize(
    ("script", "ending"),
    [("exit 3", "exited with status 3"), ("kill -9 $$", r"killed by signal 9 \(SIGKILL\)"),
     ("kill -40 $$", "killed by signal 40")],
)  # fmt: skip
def test_a_failure_says_how_the_program_ended(script: str, ending: str) -> None:
    with pytest.raises(CommandError, match=ending):
        run(["sh", "-c", script])


def test_a_program_that_takes_too_long_is_killed() -> None:
    with pytest.raises(CommandError, match=r"sleep 60 timed out after 0\.1 s"):
        run(["sleep", "60"], timeout_s=0.1)


def test_what_fails_to_start(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="no-such-program not found on PATH"):
        run(["no-such-program"])
    with pytest.raises(StackyardError, match="cannot run true: no such directory: /nowhere"):
        run(["true"], cwd=Path("/nowhere"))
    (tmp_path / "script").write_text("")
    with pytest.raises(StackyardError, match=r"permission denied: .*script is not executable"):
        run([tmp_path / "script"])
