"""Scenes of a user, and of staff: layers, adopted environments, mirrors, a yard that moves."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import yards
from scene import PAGES, Scene, plainly

from images.registry_bed import registry, trust
from support import programs, smallyard
from support.channel import Package, make_channel
from support.desk import Desk
from support.processes import end_image_servers
from support.tinywheel import wheel

NUMPY = ("numpy==2.2.6", "numpy==1.26.4")
USE = "module use ~/.local/share/stackyard/modules"


def extending(desk: Desk) -> None:
    """A site with pytorch/2.13, and wheels of what users add; then pytorch/2.14."""
    yards.site(desk, f"yard: {desk.directory}/sw")
    yards.wheels(desk, "torch==2.13.0", *NUMPY, "einops==0.8.1", "lightning==2.6.0")
    file = yards.stack(desk.directory / "pytorch", "pytorch", "2.13", "torch", "numpy==2.2.6", "pip")
    wheel(desk.directory / "wheels", "pip", "25.0")
    yards.deploy(desk, file, yard=f"{desk.directory}/sw")
    desk.replaced |= {"astro": "users", "YARD": str(yards.own_yard(desk))}
    desk.environ["SW"] = f"{desk.directory}/sw"
    newer = file.parent / "newer.yaml"
    newer.write_text(file.read_text().replace("2.13", "2.14"))


@contextmanager
def adopting(desk: Desk) -> Iterator[None]:
    for name in ("mksquashfs", "squashfuse", "unshare", "gcc"):
        programs.need(name)
    yards.site(desk)
    climate = desk.directory / "sw/conda/envs/climate"
    climate.parent.mkdir(parents=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", climate], check=True)
    desk.environ |= {"STACKYARD_IMAGE_IDLE_S": "5", "STACKYARD_TMP": str(desk.directory)}
    try:
        yield
    finally:
        end_image_servers(desk.directory)


def mirrored(desk: Desk) -> None:
    """A stack of this channel, channels of that name and of a host's, a disk."""
    channel = make_channel(desk.directory / "channel", [
        Package("numpy", "1.26.4", subdir="linux-ppc64le", files={"share/n": "1"}),
        Package("tool", "1.0", files={"bin/tool": ("#!/bin/sh\necho tool\n", 0o755)}),
    ])  # fmt: skip
    smallyard.give_site(desk.directory, text=f"channels: {{mirrors: {{conda-forge: '{channel.as_uri()}'}}}}")
    desk.environ["STACKYARD_SITE"] = str(desk.directory / "site.yaml")
    desk.replaced["https://HOST/ibm-ai/conda"] = channel.as_uri()
    desk.write(stack_yaml="name: tool\nversion: '1'\nenvironment: {channels: [conda-forge], dependencies: [tool]}\n")
    (desk.directory / "media/disk").mkdir(parents=True)


@contextmanager
def two_clusters(desk: Desk) -> Iterator[None]:
    """A registry between two yards at one path: the first is put aside before the second pulls."""
    programs.need("skopeo")
    yards.pytorch(desk)
    with registry(desk.directory / "registry") as found:
        desk.replaced |= {"registry.example.org": found.place}
        trust(desk.home, found.place)
        yield


def operating(desk: Desk) -> None:
    yards.published(desk, "2.12")
    yards.wheels(desk, "torch==2.13.0")
    yards.stack(desk.here / "stacks/pytorch", "pytorch", "2.13", "torch")


def of_a_site(desk: Desk) -> None:
    yards.wheels(desk, "torch==2.13.0")
    yards.stack(desk.here / "stacks/pytorch", "pytorch", "2.13", "torch")
    (desk.directory / "etc/stackyard").mkdir(parents=True)
    (desk.directory / "etc/stackyard/site.yaml").write_text(
        f"modules: {{formats: [tcl]}}\nyard: {desk.directory}/scratch/apps/stackyard\n"
    )
    desk.replaced[".../site-defaults.lua"] = "site-defaults.lua"


def moving(desk: Desk) -> None:
    yards.site(desk)
    yards.wheels(desk, "torch==2.13.0")
    file = yards.stack(desk.directory / "pytorch", "pytorch", "2.13", "torch")
    yards.deploy(desk, file, yard=f"{desk.directory}/sw/stackyard")


def of_julia(desk: Desk) -> None:
    """The file of the page, and a channel with a julia that can add."""
    text = '#!/bin/sh\nif [ "$1" = -e ]; then echo 2; else echo julia version 1.10.0; fi\n'
    tools = [
        Package("julia", "1.10.0", files={"bin/julia": (text, 0o755)}),
        Package("openmpi", "5.0", files={"share/o": "1"}),
    ]
    channel = make_channel(desk.directory / "channel", tools)
    yards.site(desk, f"channels: {{mirrors: {{conda-forge: '{channel.as_uri()}'}}}}")
    page = PAGES["other-languages.md"].read_text()
    file = page[page.index("# julia.yaml") :]
    desk.write(julia_yaml=file[: file.index("```")])


def damaged(desk: Desk) -> None:
    yards.pytorch(desk)
    (file,) = yards.own_yard(desk).glob("stacks/pytorch/*/prefix/lib/python3*/site-packages/torch/__init__.py")
    file.chmod(0o644)
    file.write_text(file.read_text().replace("t", "T"))
    file.chmod(0o444)


def kernels(desk: Desk) -> None:
    yards.site(desk, "nodes: {gpu: {cores: 4, gpu: {count: 1, vendor: nvidia}}}")
    yards.wheels(desk, "torch==2.13.0", "ipykernel==7.0")
    yards.deploy(desk, yards.stack(desk.directory / "pytorch", "pytorch", "2.13", "torch", "ipykernel"))


ASKED = {
    1: ("module use $SW/modules",), 4: ("chmod o+x ~ ~/.local ~/.local/share",),
    6: ("stackyard --yard $SW deploy $SW/../pytorch/newer.yaml",),
}  # fmt: skip
OTHER = {"stacks/one": "a file of another stack", "    (six": "the rest of that line"}
SCENES = (
    Scene("extend.md", (1, 2, 3, 4, 6, 5), plainly(extending), before=ASKED, shared=True),
    Scene("adopt.md", (1, 2, 3), adopting, before={1: (USE,)}, places=("/sw",)),
    Scene("mirror.md", (1, 2), plainly(mirrored), places=("/media", "/sw")),
    Scene("push-and-pull.md", (1,), two_clusters, before={1: ()}),
    Scene("operate.md", (1,), plainly(operating)),
    Scene("site.md", (1,), plainly(of_a_site), places=("/etc", "/scratch")),
    Scene("other-languages.md", (1,), plainly(of_julia), before={1: (USE,)}),
    Scene("move.md", (1,), plainly(moving), places=("/sw", "/lustre2")),
    Scene("fsck.md", (2,), plainly(damaged), ends={"stackyard fsck --deep": 3}, other=OTHER),
    Scene("jupyter.md", (2,), plainly(kernels)),
)  # fmt: skip
