"""How small scripts of the package are started: from their bytecode."""

from __future__ import annotations

import os
import py_compile
import subprocess
from pathlib import Path

from stackyard.host.run import script


def _run(words: tuple[str, ...]) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def test_a_script_runs_from_its_bytecode_and_from_its_text_where_that_is_newer(tmp_path: Path) -> None:
    file = tmp_path / "it's.py"
    file.write_text("import sys; print('former', __name__, __file__, sys.argv[1:], sys.flags.isolated)")
    words = (*script.words(file), "a b")
    said = f"__main__ {file} ['a b'] 1"
    assert _run(words) == f"former {said}" and not (tmp_path / "__pycache__").exists()
    made = py_compile.compile(str(file), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    file.write_text(file.read_text().replace("former", "latter"))
    assert _run(words) == f"former {said}"
    os.unlink(made)
    py_compile.compile(str(file))
    os.utime(file, (1, 1))
    assert _run(words) == f"latter {said}"
