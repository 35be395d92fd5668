"""Scenes in a yard: small stacks on the host's Python, deployed; without a build where that will do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import laptop
from scene import Scene, plainly

from support import programs, smallyard, testbed
from support.cli import STACKYARD
from support.desk import Desk
from support.tinywheel import wheel

INDEX = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull}
SIGNED = (
    "printf 'modules: {formats: [tcl]}\\nsignatures: {key: sign_key, allowed_signers: signers, revoked: revoked}\\n' "
    "> /etc/stackyard/site.yaml",
    "export STACKYARD_SITE=/etc/stackyard/site.yaml",
)


def site(desk: Desk, text: str = "") -> Path:
    """A site.yaml for the shell, with modules in Tcl only: no spider cache is made then, which takes seconds."""
    file = smallyard.give_site(desk.directory, text=text)
    desk.environ["STACKYARD_SITE"] = str(file)
    return file


def own_yard(desk: Desk) -> Path:
    return desk.home / ".local/share/stackyard"


def published(desk: Desk, *versions: str, stacks: tuple[str, ...] = ("pytorch",)) -> None:
    """Versions of stacks in the user's own yard, published without a build."""
    site(desk)
    for name in stacks:
        smallyard.make(own_yard(desk), *versions, stack=name)


def two_versions(desk: Desk) -> None:
    published(desk, "2.12", "2.13", stacks=("pytorch", "numerics"))


def wheels(desk: Desk, *names: str) -> None:
    """pip and uv know wheels of these names, ``NAME==VERSION``, and no index."""
    directory = desk.directory / "wheels"
    for name in names:
        wheel(directory, *name.split("==")[:2])
    desk.environ |= INDEX | {"PIP_FIND_LINKS": str(directory)}


def stack(directory: Path, name: str, version: str, *requirements: str) -> Path:
    """A stack of pip packages on the Python of the tests."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "requirements.txt").write_text("\n".join(requirements) + "\n")
    file = directory / "stack.yaml"
    file.write_text(
        f"name: {name}\nversion: '{version}'\nenvironment: requirements.txt\n"
        f"interpreter: {{source: host, path: {Path(sys.executable).resolve()}}}\n"
    )
    return file


def deploy(desk: Desk, file: Path, *options: str, yard: str = "") -> None:
    """Before the page begins."""
    own = {**os.environ, "HOME": str(desk.home), **desk.environ}
    words = [STACKYARD, *(["--yard", yard] if yard else []), "deploy", file, *options]
    done = subprocess.run(words, cwd=desk.here, env=own, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def pytorch(desk: Desk, *options: str) -> None:
    """pytorch/2.13 in the user's own yard."""
    site(desk)
    wheels(desk, "torch==2.13.0", "numpy==2.2.6")
    deploy(desk, stack(desk.directory / "pytorch", "pytorch", "2.13", "torch", "numpy"), *options)


def first_stack(desk: Desk) -> None:
    mirror = f"channels: {{mirrors: {{conda-forge: '{testbed.real_channel().as_uri()}'}}}}"
    desk.environ["STACKYARD_SITE"] = str(smallyard.give_site(desk.directory, text=mirror))
    desk.write(environment_yml=ENVIRONMENT)
    desk.replaced |= {"2026.11.21-py311": f"$(date +%Y.%-m.%-d)-py{sys.version_info[0]}{sys.version_info[1]}"}


ENVIRONMENT = """\
name: myproject
channels: [conda-forge]
dependencies: [python=3.11, numpy, typing_extensions]
"""


def unbuildable(desk: Desk) -> None:
    """A project of an older time, and the setuptools of today."""
    found = testbed.wheels(Path(__file__).with_name("setuptools.txt"))
    desk.environ |= INDEX | {"PIP_FIND_LINKS": str(found)}
    project = desk.here / "pkgresdist"
    project.mkdir()
    (project / "setup.py").write_text("import pkg_resources\nfrom setuptools import setup\nsetup(name='pkgresdist')\n")
    desk.write(requirements_txt="# ours\n./pkgresdist\n")
    site(desk)


def log(desk: Desk) -> None:
    """A log of a failed job, and a run."""
    laptop.program(desk)
    desk.write(**{"slurm-4711_out": LOG})


LOG = "step 1\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has 1 GiB\n"


def signing(desk: Desk) -> None:
    programs.need("ssh-keygen")
    (desk.directory / "etc/stackyard").mkdir(parents=True)
    desk.replaced |= {"-f /etc/stackyard/sign_key": "-N '' -f /etc/stackyard/sign_key"}
    pytorch(desk)


def completing(desk: Desk) -> None:
    for name in ("usr/share/bash-completion/completions", "usr/local/share/zsh/site-functions", "etc/profile.d",
                 "usr/share/fish/vendor_completions.d"):  # fmt: skip
        (desk.directory / name).mkdir(parents=True)
    desk.replaced["# ln"] = "ln"


EDITED: dict[int | str, tuple[str, ...]] = {
    3: ("sed -i 's/numpy/numpy, six/' environment.yml", "stackyard deploy environment.yml"),
}
SCENES = (
    Scene(
        "first-stack.md", (1, 2, 3, 4), plainly(first_stack), before=EDITED,
    ),
    Scene("compiled-packages.md", (2,), plainly(unbuildable)),
    Scene("sbom.md", (1,), plainly(pytorch)),
    Scene("catalogue.md", (1, 2), plainly(two_versions), places=("/srv",)),
    Scene("doctor.md", (1,), plainly(log), before={1: ("stackyard launch train.py",)},
          ends={"stackyard doctor slurm-4711.out": 3}),
    Scene("fsck.md", (1,), plainly(pytorch)),
    Scene("sign.md", (1, 2), plainly(signing), places=("/etc/stackyard",),
          before={2: SIGNED}),
    Scene("completion.md", (1, 2), plainly(completing), places=("/usr", "/etc", "/opt")),
)  # fmt: skip
