"""The file system servers in this user's own namespaces: those that commands of an image have started (`launcher`)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from stackyard.host.files import automount


def of_images(prefixes: Iterable[Path]) -> dict[Path, list[int]]:
    """Of each prefix the processes that serve its image in other mount namespaces, if this user may look into these."""
    found: dict[Path, list[int]] = {prefix: [] for prefix in prefixes}
    here = Path("/proc/self/ns/mnt").readlink()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            if not words[0].endswith(b"squashfuse_ll") or (process / "ns/mnt").readlink() == here:
                continue
            for prefix, pids in found.items():
                if bytes(prefix) in words:
                    pids.append(int(process.name))
        except OSError:  # it has ended, or is another user's
            continue
    return found


def silent(prefixes: Iterable[Path]) -> dict[Path, list[int]]:
    """Those that do not answer: stopped, or waiting for a file system themselves. Each is asked, in a child."""
    return {
        prefix: [pid for pid in servers if not automount.answers(Path(f"/proc/{pid}/root{prefix}"))]
        for prefix, servers in of_images(prefixes).items()
    }
