"""`ImageName`: an image of a registry, as Docker, Enroot, podman and Shifter write it.

    docker://nvcr.io/nvidia/pytorch:25.01-py3   Docker, skopeo, Apptainer
    nvcr.io#nvidia/pytorch:25.01-py3            Enroot and Pyxis, also docker://[USER@]nvcr.io#...
    nvcr.io/nvidia/pytorch:25.01-py3            podman, EDF

Grammar: distribution/reference of the CNCF's distribution project; ``enroot import`` for the second.
"""

from __future__ import annotations

import re

from stackyard.core.errors import InputError
from stackyard.core.late import dataclass

DOCKER, HUB = "docker://", "docker.io"
_FILES = (".sif", ".sqsh", ".sqfs", ".squashfs", ".img")
_PATH = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*"
_NAME = re.compile(
    rf"(?:(?P<registry>[A-Za-z0-9.-]+(?::[0-9]+)?)[#/])?(?P<repository>{_PATH})"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?",
    re.ASCII,
)


@dataclass(frozen=True)
class ImageName:
    """An image of a registry. `registry` empty: Docker Hub; `tag` and `digest` empty: ``latest``.

    `user` is the login that Enroot looks up among its credentials; no password has a place in a name.
    """

    repository: str
    registry: str = ""
    tag: str = ""
    digest: str = ""
    user: str = ""

    @property
    def version(self) -> str:
        """``@sha256:...``, which wins over a tag, or ``:TAG``, or nothing."""
        return f"@{self.digest}" if self.digest else f":{self.tag}" if self.tag else ""

    @property
    def plain(self) -> str:
        """``nvcr.io/nvidia/pytorch:25.01-py3``; of Docker Hub with its full name, ``docker.io/library/debian``."""
        whole = self.repository if self.registry or "/" in self.repository else f"library/{self.repository}"
        return f"{self.registry or HUB}/{whole}{self.version}"

    @property
    def docker(self) -> str:
        """``docker://nvcr.io/nvidia/pytorch:25.01-py3``, for skopeo."""
        return DOCKER + self.plain

    @property
    def enroot(self) -> str:
        """``nvcr.io#nvidia/pytorch:25.01-py3``; a slash in place of ``#`` would be a part of Docker Hub's name."""
        user = f"{self.user}@" if self.user else ""
        return user + (f"{self.registry}#" if self.registry not in ("", HUB) else "") + self.repository + self.version


def image_name(text: str) -> ImageName:
    """Parse a name of each of the three forms.

    Raises:
        InputError: it has none of them.
    """
    rest = text.removeprefix(DOCKER)
    at = re.match(r"([^@/#:]+)@(?!sha256:)", rest)
    rest = rest[at.end() :] if at else rest
    match = _NAME.fullmatch(rest)
    registry = match["registry"] if match else None
    if match and registry and "#" not in rest and not is_host(registry):  # nvidia/cuda: no registry, Docker Hub's
        match, registry = _NAME.fullmatch("docker.io#" + rest), ""
    if match is None:
        hint = "write docker://REGISTRY/NAME:TAG, docker://REGISTRY/NAME@sha256:..., or REGISTRY#NAME:TAG"
        raise InputError(f"{text} is not an image of a registry", hint=hint)
    user = at[1] if at else ""
    return ImageName(match["repository"], registry or "", match["tag"] or "", match["digest"] or "", user)


def is_image_name(text: str) -> bool:
    """Whether a word names an image of a registry rather than a file: by ``://``, ``#``, or a registry before a slash.

    What begins with ``.`` or ``/``, or ends as a file of an image does, is a file.
    """
    if not text or text[0] in "./" or text.endswith(_FILES):
        return False
    return "://" in text or "#" in text or ("/" in text and is_host(text.partition("/")[0]))


def is_host(word: str) -> bool:
    """Whether the word before the first slash of a name is a registry, and not an account of Docker Hub."""
    return "." in word or ":" in word or word == "localhost"
