"""What is wrong with what a command printed, and with what it left."""

from __future__ import annotations

import os
import re
import stat
import unicodedata
from collections.abc import Iterator
from pathlib import Path

from support.cli import Done


def judged(done: Done) -> list[str]:
    """What is wrong with what a command printed, and its exit status."""
    text = done.out + done.err
    wrong = []
    if "Traceback (most recent" in text or "RecursionError" in text or "Fatal Python" in text:
        wrong.append("traceback: " + text.strip().splitlines()[-1][:200])
    if re.search(r"no such option|[Mm]issing (argument|option)|unexpected extra|no such command", done.err):
        wrong.append(f"wrong words: {done.err}")
    if not 0 <= done.code <= 4:
        wrong.append(f"exit status {done.code}")
    odd = {each for each in text if unicodedata.category(each) in ("Cc", "Cf", "Co") and each not in "\n\t"}
    if odd:
        line = next(line for line in re.split(r"\n", text) if odd & set(line))
        wrong.append(f"control characters {sorted(map(ascii, odd))} in {line[:160]!a}")
    if "x\x1b[2J\x9b\n" in text or re.search(r"x\\?\S*\n\u202egnp", text):
        wrong.append("a name breaks the line")
    return wrong


def changed(before: dict[str, tuple[object, ...]], after: dict[str, tuple[object, ...]]) -> list[str]:
    return [
        f"{name}: {before.get(name)} -> {after.get(name)}"
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    ]


def regular_files(top: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """The regular files of a tree, behind no link, not behind mounts, and not in what is too deep or too wide."""
    device = top.lstat().st_dev
    for directory, names, files in os.walk(top):
        status = os.lstat(directory)
        if status.st_dev != device or len(files) > 10_000 or directory.count("/") > 60 or os.path.ismount(directory):
            names.clear()
            continue
        for name in files:
            path = Path(directory, name)
            status = path.lstat()
            if stat.S_ISREG(status.st_mode):
                yield path, status
