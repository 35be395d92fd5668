"""A real registry on this machine: Debian's docker-registry, with or without logins."""

from __future__ import annotations

import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support import programs

PASSWORDS = "researcher:$2y$04$mUprcxo.X58hUWoD6PRz6u78VzYyv6JQTPuUI7RYVBczVNoLioXyC\n"
"""The password is ``right``."""
_CONFIG = """version: 0.1
storage: {{filesystem: {{rootdirectory: {directory}/store}}, delete: {{enabled: true}}}}
http: {{addr: "{place}"}}
log: {{level: error}}
"""
_LOGIN = "auth: {{htpasswd: {{realm: test, path: {directory}/passwords}}}}\n"


@dataclass(frozen=True)
class Registry:
    """Where it answers, and where it keeps its blobs."""

    place: str
    directory: Path

    @property
    def blobs(self) -> list[Path]:
        return sorted((self.directory / "store").rglob("blobs/sha256/*/*/data"))

    @property
    def bytes(self) -> int:
        return sum(path.stat().st_size for path in self.blobs)


@contextmanager
def registry(directory: Path, *, logins: bool = False) -> Iterator[Registry]:
    program = programs.need("docker-registry")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{free.getsockname()[1]}"
    directory.mkdir(exist_ok=True)
    (directory / "passwords").write_text(PASSWORDS)
    (directory / "config.yml").write_text(
        (_CONFIG + (_LOGIN if logins else "")).format(directory=directory, place=place)
    )
    with (directory / "log").open("w") as log, subprocess.Popen(
        [program, "serve", directory / "config.yml"], stdout=log, stderr=log
    ) as process:  # fmt: skip
        try:
            _wait(f"http://{place}/v2/", directory / "log")
            yield Registry(place, directory)
        finally:
            process.kill()


def trust(home: Path, place: str) -> None:
    """Let skopeo of a home reach a registry without TLS, and take images that are not signed."""
    containers = home / ".config/containers"
    containers.mkdir(parents=True)
    (containers / "registries.conf").write_text(f'[[registry]]\nlocation = "{place}"\ninsecure = true\n')
    (containers / "policy.json").write_text('{"default": [{"type": "insecureAcceptAnything"}]}')


def _wait(url: str, log: Path) -> None:
    until = time.monotonic() + 120
    while True:
        try:
            urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=60)
            return
        except urllib.error.HTTPError:  # it wants a login
            return
        except OSError:
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.02)
