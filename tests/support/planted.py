"""Secrets that a test plants, and the search for them: in files, in output, in the argument lists of all processes."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote


class Planted:
    """Secret values by the place where they are planted."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self.values = dict(values)
        self.leaks: list[str] = []
        """What was found, one line each: where, and which secret."""

    def search(self, where: str, data: bytes) -> None:
        """Search one text for every secret, as it is and percent-encoded."""
        for name, value in self.values.items():
            if any(form in data for form in _forms(value)):
                self.leaks.append(f"{name} in {where}")

    def search_files(self, directory: Path, besides: Iterable[Path] = ()) -> int:
        """Search names and contents of all files below a directory; how many there are. `besides` may hold secrets."""
        left_out, count = {path.resolve() for path in besides}, 0
        for place, directories, files in os.walk(directory):
            self.search(f"names in {place}", "\n".join((*directories, *files)).encode())
            for name in files:
                path = Path(place, name)
                if path.is_symlink() or path.resolve() in left_out or not path.is_file():
                    continue
                count += 1
                self.search(str(path), path.read_bytes())
        return count

    @contextmanager
    def watching(self, directory: Path, pause_s: float = 0.01) -> Iterator[None]:
        """Search the argument lists of all processes, and what appears for a moment in a directory, meanwhile."""
        ended = threading.Event()
        thread = threading.Thread(target=self._watch, args=(directory, pause_s, ended))
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _watch(self, directory: Path, pause_s: float, ended: threading.Event) -> None:
        known: dict[str, bytes] = {}
        seen: dict[str, int] = {}
        while not ended.wait(pause_s):
            for entry in os.scandir("/proc"):
                if entry.name.isdigit():
                    with suppress(OSError):
                        if seen.get(entry.name, 0) > 3:  # by then it has replaced itself, if it does at all
                            continue
                        seen[entry.name] = seen.get(entry.name, 0) + 1
                        words = Path(entry.path, "cmdline").read_bytes()
                        if known.get(entry.name) != words:
                            known[entry.name] = words
                            self.search(f"argument list {words[:300]!r}", words)
            for place, _, files in os.walk(directory):
                for path in (Path(place, name) for name in files):
                    with suppress(OSError):
                        if path.is_file():  # a pipe is not to be read
                            self.search(f"{path}, for a moment", path.read_bytes())


def _forms(value: str) -> set[bytes]:
    """A value as it is and as parts of URLs have it."""
    return {form.encode() for form in (value, quote(value, safe=""), quote(value), quote(value, safe="=:;@"))}
