"""Scenes with images: a registry on this machine, small systems as bases, Apptainer, a revision in one file."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yards
from scene import Scene, plainly

from images import basebed
from images.registry_bed import registry, trust
from support import images, programs
from support.channel import Package, make_channel
from support.desk import Desk
from support.processes import end_image_servers

DEBIAN = "library/debian:12"
STACK = "name: pytorch\nversion: '2.13'\nenvironment: {{channels: ['{channel}'], dependencies: [pytorch]}}\n"
SAYS = '#!/bin/sh\necho "python of a container: $*"\n'
PROGRAMS = ("skopeo", "mksquashfs", "squashfuse", "unshare", "gcc", "docker-registry", "busybox")


def system(directory: Path) -> Path:
    """A small system with commands named python, horovodrun, nvcc, julia."""
    root = basebed.system(directory)
    (root / "opt/dl/bin").mkdir(parents=True)
    for name in ("bin/python", "bin/horovodrun", "bin/nvcc", "bin/julia", "opt/dl/bin/dlrun"):
        (root / name).write_text(SAYS)
        (root / name).chmod(0o755)
    return root


def pushed(desk: Desk, layout: Path, name: str) -> None:
    target = f"docker://{desk.replaced['registry.example.org']}/{name}"
    words = ["skopeo", "copy", "-q", "--insecure-policy", "--dest-tls-verify=false", f"oci:{layout}:1", target]
    subprocess.run(words, check=True)


@contextmanager
def world(desk: Desk) -> Iterator[None]:
    """A registry that stands for all registries, images of each kind, and a revision whose python is a script."""
    for name in PROGRAMS:
        programs.need(name)
    desk.environ |= {name: images.environ()[name] for name in ("APPTAINER_USERNS",)}
    (desk.bin / "apptainer").symlink_to(images.apptainer())
    yards.site(desk)
    tools = [
        Package(*pair, files={f"bin/{pair[0]}-tool": (SAYS, 0o755)}) for pair in (("pytorch", "2.13"), ("env", "1"))
    ]
    channel = make_channel(desk.directory / "channel", tools)
    (desk.directory / "stack.yaml").write_text(STACK.format(channel=channel.as_uri()))
    yards.deploy(desk, desk.directory / "stack.yaml")
    desk.replaced["2.13-py311-1"] = "2.13-default-1"
    root = system(desk.here / "trixie")
    layers = [basebed.of_directory(root)]
    basebed.docker_archive(desk.here / "powerai.tar", layers)
    basebed.oci(desk.here / "layouts/rocm", layers, tag="6.2")
    basebed.oci(desk.directory / "one", layers)
    with registry(desk.directory / "registry") as found:
        desk.replaced |= {"docker://debian:12": f"docker://{found.place}/{DEBIAN}", "docker.io": found.place}
        desk.replaced |= {"registry.example.org": found.place, "registry.example": found.place}
        trust(desk.home, found.place)
        for name in (DEBIAN, "library/julia:1.10", "x/y:1"):
            pushed(desk, desk.directory / "one", name)
        desk.write(train_py="", environment_yml=f"name: env\nchannels: [{channel.as_uri()}]\ndependencies: [env]\n")
        try:
            yield
        finally:
            end_image_servers(desk.directory)


def in_one_file(desk: Desk) -> None:
    for name in PROGRAMS:
        programs.need(name)
    desk.environ |= {"STACKYARD_IMAGE_IDLE_S": "5", "STACKYARD_TMP": str(desk.directory)}
    desk.replaced["mount REV"] = "mount pytorch"
    yards.pytorch(desk, "--image", "squashfs")
    desk.write(train_py="import torch\nprint(torch.tag)\n")


USE = "module use ~/.local/share/stackyard/modules"
WRAPPED = ("stackyard image build --base powerai --format sif -o powerai.sif", USE)
SCENES = (
    Scene(
        "containers.md", (1, 2, 3, 5, "bases.md#1", "wrap.md#1", "wrap.md#2", "other-languages.md#2"), world,
        before={"bases.md#1": ("cp pytorch.sif lumi-pytorch.sif",), "wrap.md#1": WRAPPED},
    ),
    Scene("images.md", (1, "images-admin.md#1"), plainly(in_one_file), before={1: (USE,)}),
)  # fmt: skip
