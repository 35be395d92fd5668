"""Names of images in registries: one name in each of the forms that programs take."""

from __future__ import annotations

import pytest

from stackyard.core.errors import InputError
from stackyard.inputs.reading.imagename import image_name, is_image_name

DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("text", "docker", "enroot"),
    [
        ("docker://nvcr.io/nvidia/pytorch:25.01-py3", "nvcr.io/nvidia/pytorch:25.01-py3",
         "nvcr.io#nvidia/pytorch:25.01-py3"),
        ("nvcr.io#nvidia/pytorch:25.01-py3", "nvcr.io/nvidia/pytorch:25.01-py3", "nvcr.io#nvidia/pytorch:25.01-py3"),
        ("docker://$oauthtoken@nvcr.io#nvidia/x", "nvcr.io/nvidia/x", "$oauthtoken@nvcr.io#nvidia/x"),
        ("localhost:5000/a/b:1", "localhost:5000/a/b:1", "localhost:5000#a/b:1"),
        ("docker://busybox", "docker.io/library/busybox", "busybox"),
        ("docker://nvidia/cuda:12", "docker.io/nvidia/cuda:12", "nvidia/cuda:12"),
        ("docker.io/library/debian:12", "docker.io/library/debian:12", "library/debian:12"),
        (f"docker://ghcr.io/a/b:1@{DIGEST}", f"ghcr.io/a/b@{DIGEST}", f"ghcr.io#a/b@{DIGEST}"),
        (f"ghcr.io#a/b@{DIGEST}", f"ghcr.io/a/b@{DIGEST}", f"ghcr.io#a/b@{DIGEST}"),
    ],
)  # fmt: skip
def test_one_name_in_each_form(text: str, docker: str, enroot: str) -> None:
    name = image_name(text)
    assert (name.docker, name.enroot) == (f"docker://{docker}", enroot)
    assert image_name(name.docker).docker == name.docker
    assert image_name(name.enroot).docker == name.docker


@pytest.mark.parametrize(
    "text", ["docker://", "docker://A/b", "nvcr.io#", "docker://x@sha256:12", "a#b#c", "dockerd://x"]
)
def test_no_name(text: str) -> None:
    with pytest.raises(InputError, match="is not an image of a registry"):
        image_name(text)


def test_a_name_is_told_from_a_file() -> None:
    for name in ("docker://busybox", "nvcr.io#nvidia/pytorch", "nvcr.io/nvidia/pytorch:1", "localhost:5000/x"):
        assert is_image_name(name)
    for file in ("", "/sw/x.sif", "./docker.io/x", "images/x.sqsh", "images/pytorch", "nvcr.io/x.sqsh"):
        assert not is_image_name(file)
