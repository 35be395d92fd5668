"""Processes that name a path, as the kernel shows them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from stackyard.host.files import at
from stackyard.host.run import processes

DEEP = """
import os, sys
for _ in range(200):
    os.mkdir("a" * 100)
    os.chdir("a" * 100)
held = os.open(".", os.O_RDONLY)
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_process_in_a_directory_with_a_path_too_long_to_tell_ends_no_search(tmp_path: Path) -> None:
    """Any account can have one: its working directory and an open directory are 20,000 characters deep."""
    (tmp_path / "deep").mkdir()
    words = [sys.executable, "-c", DEEP]
    with subprocess.Popen(words, cwd=tmp_path / "deep", stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin and process.stdout and process.stdout.readline() == b"ready\n"
        with pytest.raises(OSError, match="too long"):
            os.readlink(f"/proc/{process.pid}/cwd")
        found, _ = processes.naming(re.compile(b"for _ in range\\(200\\)"))
        assert [each.pid for each in found] == []
        process.stdin.close()
    with at.directory(tmp_path, tmp_path) as top:
        at.remove_tree(top, "deep")
