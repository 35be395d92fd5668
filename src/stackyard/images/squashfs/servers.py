"""The file system servers in this user's namespaces, which commands of images have started (`launcher`)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from stackyard.host.files import automount


def of_images(prefixes: Iterable[Path]) -> dict[Path, list[int]]:
    """The processes that serve each prefix's image in other mount namespaces, as far as this user may inspect these."""
    servers: dict[Path, list[int]] = {prefix: [] for prefix in prefixes}
    here = Path("/proc/self/ns/mnt").readlink()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            if not words[0].endswith(b"squashfuse_ll") or (process / "ns/mnt").readlink() == here:
                continue
            for prefix, pids in servers.items():
                if bytes(prefix) in words:
                    pids.append(int(process.name))
        except OSError:  # it has ended, or is another user's
            continue
    return servers


def silent(prefixes: Iterable[Path]) -> dict[Path, list[int]]:
    """The servers that do not answer: stopped, or waiting for a file system. Each is queried from a child process."""
    return {
        prefix: [pid for pid in servers if not automount.answers(Path(f"/proc/{pid}/root{prefix}"))]
        for prefix, servers in of_images(prefixes).items()
    }
