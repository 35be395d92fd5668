"""SSH keys, lists of signers and agents, made by the real programs."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support import programs


def key(directory: Path, name: str, passphrase: str = "") -> Path:
    """A new key: the path of its private half, beside which the public one is."""
    programs.need("ssh-keygen")
    directory.mkdir(parents=True, exist_ok=True)
    keygen("-q", "-t", "ed25519", "-N", passphrase, "-C", name, "-f", directory / name)
    return directory / name


def allow(file: Path, **signers: Path) -> Path:
    """A list of signers: ``anna=key`` is anna@site. An option of a line is in the name: see ssh-keygen(1)."""
    lines = [f"{name}@site {public(path)}\n" for name, path in signers.items()]
    file.write_text("".join(lines))
    file.chmod(0o644)
    return file


def public(path: Path) -> str:
    """The line of a public key."""
    return path.with_name(f"{path.name}.pub").read_text().strip()


def keygen(*words: str | Path) -> str:
    """Run ssh-keygen."""
    return subprocess.run(["ssh-keygen", *map(str, words)], check=True, capture_output=True, text=True).stdout


@contextmanager
def agent(private: Path, passphrase: str) -> Iterator[dict[str, str]]:
    """An ssh-agent that has a key: the variable by which programs find it."""
    said = subprocess.run(["ssh-agent", "-s"], check=True, capture_output=True, text=True).stdout
    found = dict(re.findall(r"(SSH_\w+)=([^;]+);", said))
    ask = private.parent / "ask"
    ask.write_text(f"#!/bin/sh\necho '{passphrase}'\n")
    ask.chmod(0o700)
    variables = {"SSH_AUTH_SOCK": found["SSH_AUTH_SOCK"]}
    try:
        more = {"SSH_ASKPASS": str(ask), "SSH_ASKPASS_REQUIRE": "force"}
        subprocess.run(["ssh-add", "-q", private], check=True, env={**os.environ, **variables, **more},
                       stdin=subprocess.DEVNULL)  # fmt: skip
        yield variables
    finally:
        os.kill(int(found["SSH_AGENT_PID"]), signal.SIGTERM)
