"""Ranks that stay in MPI_Init are ended, and shown; others are left alone."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from support import programs, stuckmpi
from support.cli import Done

SOURCE = "#include <unistd.h>\nint {}(void) {{ for (;;) pause(); }}\nint main(void) {{ return {}(); }}\n"


@pytest.fixture
def launch(tmp_path: Path) -> Callable[..., Done]:
    """Start a program that stays in a function, with a library of that name in it, below the directory of the test."""
    programs.need("gcc", "gdb")
    library = tmp_path / "libmpi.so"
    subprocess.run(["gcc", "-shared", "-x", "c", "/dev/null", "-o", library], check=True)

    def start(function: str, timeout_s: float = 120) -> Done:
        program = tmp_path / function
        link = ["-Wl,--no-as-needed", f"-Wl,-rpath,{tmp_path}", library]
        source = SOURCE.format(function, function)
        words = ["gcc", "-g", "-x", "c", "-", "-x", "none", "-o", program, *link]
        subprocess.run(words, input=source, text=True, check=True)
        done = subprocess.run([program], cwd=tmp_path, timeout=timeout_s, check=False)
        assert done.returncode == 0, f"exit {done.returncode}"
        return Done(0, "", "")

    return start


def test_ranks_in_mpi_init_are_ended_and_shown(
    launch: Callable[..., Done], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(AssertionError, match=stuckmpi.STUCK) as failed:
        stuckmpi.again(lambda: launch("PMPI_Init"), tmp_path, late_s=2)
    assert "in PMPI_Init ()" in str(failed.value)
    assert "tried again: " in capsys.readouterr().out


def test_ranks_elsewhere_are_left_to_the_time_limit(launch: Callable[..., Done], tmp_path: Path) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        stuckmpi.again(lambda: launch("main_loop", timeout_s=6), tmp_path, late_s=2)
