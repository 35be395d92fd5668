"""Other suites of Debian, and of Ubuntu, from the mirror that this machine's own apt configuration names."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from stackyard.core.errors import MissingError
from stackyard.host.run.command import CommandError, run

SOURCES = Path("/etc/apt/sources.list.d/debian.sources")
UBUNTU = "http://archive.ubuntu.com/ubuntu"
UBUNTU_KEYS = "usr/share/keyrings/ubuntu-archive-keyring.gpg"
FETCH_S = 300


def debian(suite: str) -> str:
    """The entry of a ``.sources`` file for a suite of Debian.

    Raises:
        MissingError: this machine's own entries cannot be read.
    """
    if not SOURCES.exists():
        raise MissingError(
            f"packages of Debian {suite} cannot be fetched: no {SOURCES}", hint="run the tests on Debian"
        )
    first = SOURCES.read_text().split("\n\n")[0].strip()
    return re.sub(r"(?m)^Suites:.*", f"Suites: {suite}", re.sub(r"(?m)^#.*\n", "", first)) + "\n"


def ubuntu(suite: str, keyring: Path) -> str:
    """The same for Ubuntu, whose keys Debian has in a package."""
    fields = {"Types": "deb", "URIs": UBUNTU, "Suites": suite, "Components": "main universe", "Signed-By": keyring}
    return "".join(f"{name}: {value}\n" for name, value in fields.items())


def download(suite: str, packages: tuple[str, ...], directory: Path) -> None:
    """Download packages of a suite of Debian into a directory, without installing them.

    Raises:
        MissingError: they cannot be fetched.
    """
    with tempfile.TemporaryDirectory() as work:
        base = Path(work)
        for name in ("parts", "lists/partial", "cache/archives/partial"):
            (base / name).mkdir(parents=True)
        (base / "parts" / "other.sources").write_text(debian(suite))
        options = [
            "Dir::Etc::SourceList=/dev/null",
            f"Dir::Etc::SourceParts={base}/parts",
            f"Dir::State::Lists={base}/lists",
            f"Dir::Cache={base}/cache",
            "APT::Sandbox::User=root",
        ]
        argv = ["apt-get", "-qq", *(word for option in options for word in ("-o", option))]
        try:
            run([*argv, "update"], timeout_s=FETCH_S)
            run([*argv, "download", *packages], cwd=directory, timeout_s=FETCH_S)
        except CommandError as error:
            what = " ".join(packages)
            raise MissingError(f"packages of Debian {suite} cannot be fetched: {what}", detail=error.detail) from error
