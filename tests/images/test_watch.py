"""The watcher of a rank: it says what was mapped, and changes nothing of the program: descriptors, status, streams."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from images.elfbed import build
from stackyard.host.machine.daemons import RANKS
from stackyard.images.bindings import watch
from stackyard.images.bindings.maps import _rank
from support import programs

pytestmark = pytest.mark.real


def watched(directory: Path, *argv: str | Path, pass_fds: tuple[int, ...] = ()) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-I", "-S", watch.__file__, directory, ",".join(RANKS), *argv]
    environ = {**os.environ, "PMI_RANK": "3", "SLURM_PROCID": "9"}
    return subprocess.run(
        words, capture_output=True, text=True, check=False, env=environ, pass_fds=pass_fds, timeout=240
    )


def test_it_passes_all_on_and_notes_what_was_mapped(tmp_path: Path) -> None:
    """A launcher's descriptor (PMI_FD) must reach the program, which runs below two others."""
    programs.need("gcc")
    library = build(tmp_path / "lib/libmpi.so.12")
    source = (
        "#include <unistd.h>\n#include <stdlib.h>\nint libmpi_f(void);\n"
        'int main(int c, char **v) { sleep(1); return write(atoi(v[1]), "yes", 3) == 3 ? 4 + libmpi_f() : 1; }'
    )
    app = build(tmp_path / "app", source=source, needs=(library,), program=True, runpath=str(library.parent))
    read, write = os.pipe()
    done = watched(tmp_path, "sh", "-c", f"{app} {write}; exit $?", pass_fds=(write,))
    os.close(write)
    assert (done.returncode, os.read(read, 10)) == (5, b"yes")
    os.close(read)
    said = json.loads(next(tmp_path.glob("rank-*.json")).read_text())
    assert (said["rank"], said["code"]) == (3, 5) and str(library) in said["files"]
    rank = _rank({**said, "code": 0}, library)
    assert rank.is_host and rank.library == str(library) and rank.findings == ()
    other = build(tmp_path / "other/libmpi.so.12")
    [found] = _rank({**said, "code": 0}, other).findings
    assert found.rule == "rank-mpi" and f"rank 3 on {said['host']} has loaded {library}, not {other}" in found.message


def test_a_program_without_an_mpi(tmp_path: Path) -> None:
    done = watched(tmp_path, "sh", "-c", "kill -9 $$")
    assert done.returncode == 137
    said = json.loads(next(tmp_path.glob("rank-*.json")).read_text())
    [found] = _rank(said, tmp_path).findings
    assert found.rule == "rank-failed"
    [found] = _rank({**said, "code": 0}, tmp_path).findings
    assert "has loaded no MPI" in found.message
