"""A real bash writes its state and it is read back, whatever was done to the shell in between."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from stackyard.host.machine import shell_state
from stackyard.host.machine.shell_state import ShellState


def state_after(directory: Path, code: str) -> ShellState:
    stem = directory / "a state"
    lines = ["shopt -s expand_aliases", shell_state.WRITER, code, shell_state.write(stem)]
    assert not shell_state.is_written(stem)
    subprocess.run(["bash", "--norc", "--noprofile", "-c", "\n".join(lines)], check=True, env={"PATH": "/usr/bin:/bin"})
    assert shell_state.is_written(stem)
    return shell_state.read(stem)


def test_values_arrive_as_they_are(tmp_path: Path) -> None:
    found = state_after(tmp_path, "export TWO=$'one\n=two' EMPTY= ODD='\\ \"$x\"'; local_one=1")
    assert {name: found.variables[name] for name in ("TWO", "EMPTY", "ODD")} == {
        "TWO": "one\n=two", "EMPTY": "", "ODD": '\\ "$x"'
    }  # fmt: skip
    assert "local_one" not in found.variables


def test_functions_keep_their_text_and_aliases_lose_their_quotes(tmp_path: Path) -> None:
    code = """
tool() {
    cat <<END
other ()
{
}
alias x='y'
END
}
alias ipy='ipython --quiet' q='it'\\''s' two='one
alias three=four'
"""
    found = state_after(tmp_path, code)
    assert found.functions == {"tool": "    cat <<END\nother ()\n{\n}\nalias x='y'\nEND\n"}
    assert found.aliases == {"ipy": "ipython --quiet", "q": "it's", "two": "one\nalias three=four"}


@pytest.mark.parametrize(
    "code",
    ["set -eu", "PATH=/nowhere", "alias read=false printf=false declare=false", "set -o posix", "set -a; f() { :; }",
     "unalias -a; name=mine"],
)  # fmt: skip
def test_what_the_shell_was_told_does_not_matter(tmp_path: Path, code: str) -> None:
    found = state_after(tmp_path, f"export MINE=1; alias mine='a b'; f() {{ :; }}; {code}")
    assert found.variables["MINE"] == "1"
    assert found.functions == {"f": "    :"}
    assert found.aliases.get("mine") == (None if "unalias" in code else "a b")
