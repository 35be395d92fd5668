"""`launch --start-method`: how the processes of a program are started, where the program does not choose."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import shells
from support.cli import stackyard

PROGRAM = """
import multiprocessing, os, sys

def work(out):
    out.put((os.getppid(), "forked" if FIRST else "anew"))

FIRST = __name__ == "__main__"
if __name__ == "__main__":
    if len(sys.argv) > 1:
        multiprocessing.set_start_method(sys.argv[1])
    out = multiprocessing.Queue()
    process = multiprocessing.Process(target=work, args=(out,))
    process.start()
    parent, how = out.get(timeout=60)
    process.join()
    print("by", multiprocessing.get_start_method(), how, "child of", "me" if parent == os.getpid() else "a server")
"""


@pytest.mark.parametrize(("given", "chosen", "said"), [
    ("forkserver", "", "by forkserver anew child of a server"), ("spawn", "", "by spawn anew child of me"),
    ("fork", "", "by fork forked child of me"), ("forkserver", "spawn", "by spawn anew child of me"),
])  # fmt: skip
def test_start_method(tmp_path: Path, given: str, chosen: str, said: str) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    words = ["launch", "--start-method", given, "-r", "1", "train.py", *([chosen] if chosen else [])]
    assert said in stackyard(*words, cwd=tmp_path).out


def test_start_method_needs_the_probe(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    site = shells.write(tmp_path / "site.yaml", "launch: {probe: false}")
    done = stackyard("--site", site, "launch", "--start-method", "spawn", "train.py", cwd=tmp_path, expect=2)
    assert "launch.probe is false" in done.err
