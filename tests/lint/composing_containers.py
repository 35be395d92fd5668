"""Composed batch scripts whose ranks run in a container of a scheduler's, with what their jobs must have.

Grammars: the READMEs and manuals that `stackyard.lint.systems` names. Each script is one of a seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

Rng = random.Random
DIGEST = "sha256:" + "0123456789abcdef" * 4


@dataclass
class Inside:
    """What the job of a script must have. `refused`: part of the reason for which none is made."""

    container: str = ""
    mounts: list[str] = field(default_factory=list)
    workdir: str = ""
    options: list[str] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    """Texts that notes must have."""
    refused: str = ""
    files: dict[str, str] = field(default_factory=dict)
    """Definition files that the script names, with their text."""
    program: tuple[str, ...] = ("./solve", "in.txt")
    nodes: int = 1
    ranks: int = 1


@dataclass
class Script:
    """A script under construction: lines of the head, lines before the launch, and words of the launch."""

    rng: Rng
    truth: Inside = field(default_factory=Inside)
    head: list[str] = field(default_factory=list)
    before: list[str] = field(default_factory=list)
    outer: list[str] = field(default_factory=list)
    inner: list[str] = field(default_factory=list)

    def some(self, share: float) -> bool:
        return self.rng.random() < share

    def valued(self, name: str, value: str, quote: bool = True) -> list[str]:
        """An option on a line of bash: joined or apart, quoted or not, or with the value in a variable."""
        text = f"'{value}'" if (quote and self.some(0.3)) or any(c in value for c in " #;<>") else value
        if quote and self.some(0.2):
            variable = f"V{len(self.before)}"
            self.before.append(f"{variable}={text}")
            text = f'"${{{variable}}}"' if self.some(0.5) else f"${variable}"
        return [f"{name}={text}"] if self.some(0.5) else [name, text]

    def place(self, words: list[str], name: str, value: str = "") -> None:
        """An option of srun: on its line, or now and then in the head."""
        if self.some(0.2):
            self.head.append(f"{name}={escaped(value)}" if value else name)
        else:
            words += self.valued(name, value) if value else [name]


def escaped(value: str) -> str:
    return value.replace("#", "\\#").replace(" ", "\\ ")


def composed(system: str, seed: int) -> tuple[str, Inside]:
    """A script of one system, and its truth; HERE stands for the directory of images."""
    script = Script(Rng(f"{system} {seed}"))
    rng, truth = script.rng, script.truth
    truth.nodes, each = rng.choice((1, 1, 2, 4)), rng.choice((1, 2, 4))
    truth.workdir = OWN if system in ("pyxis", "edf", "podman-hpc") else ""
    truth.ranks = truth.nodes * each
    script.head += ["--time=10", f"--nodes={truth.nodes}", f"--ntasks-per-node={each}", "--cpus-per-task=2"]
    if script.some(0.3):
        script.before.append("export OMP_PROC_BIND=close")
    SYSTEMS[system](script)
    rng.shuffle(script.head)
    words = ["srun", *script.outer, *script.inner, *truth.program]
    joint = " \\\n    " if script.some(0.4) else " "
    lines = ["#!/bin/bash", *(f"#SBATCH {line}" for line in script.head), *script.before, joint.join(words)]
    return "\n".join(lines) + "\n", truth


OWN = "image"
"""The directory that the image names."""


def reference(rng: Rng) -> tuple[str, str, str]:
    """Registry, name and version of an image."""
    registry = rng.choice(("", "", "nvcr.io", "ghcr.io", "reg.site.org:5000"))
    name = rng.choice(("a/pytorch", "nvidia/pytorch", "x/y-z/deep")) if registry else rng.choice(("ubuntu", "a/torch"))
    return registry, name, rng.choice(("", ":25.01-py3", ":1", f"@{DIGEST}", f":2@{DIGEST}"))


def docker(registry: str, name: str, version: str) -> str:
    return "docker://" + (f"{registry}/" if registry else "") + name + version


DIRECTORIES = ("/data", "/scratch/me", "/p/project-x/sets", "./out")


def pyxis_words(script: Script) -> None:
    """Mounts, directory and switches of Pyxis."""
    rng, truth, words = script.rng, script.truth, script.outer
    mounts = list[str]()
    for source in rng.sample(DIRECTORIES, rng.choice((0, 1, 1, 2, 3))):
        target, flags = rng.choice(("", "/mnt", "/w/in")), rng.choice(("", "", "ro", "ro+rprivate"))
        mounts.append(
            source + (f":{target}" if target else f":{source}" if flags else "") + (f":{flags}" if flags else "")
        )
        truth.mounts.append(":".join(filter(None, (source, target or source, flags))))
    if mounts:
        script.place(words, "--container-mounts", ",".join(mounts))
    if script.some(0.5):
        truth.workdir = rng.choice(("/mnt", "/workspace"))
        script.place(words, "--container-workdir", truth.workdir)
    pairs = (("container-mount-home", "no-container-mount-home"), ("container-remap-root", "no-container-remap-root"),
             ("container-writable", "container-readonly"),
             ("container-entrypoint", "no-container-entrypoint"))  # fmt: skip
    for pair in rng.sample(pairs, rng.choice((0, 1, 2))):
        switch = f"--{rng.choice(pair)}"
        truth.options.append(switch)
        script.place(words, switch)
    if script.some(0.2):
        truth.options.append("--container-env=NCCL_DEBUG,PATH")
        script.place(words, "--container-env", "NCCL_DEBUG,PATH")


def pyxis(script: Script) -> None:
    """srun --container-image=[USER@][REGISTRY#]IMAGE[:TAG]|PATH."""
    rng, truth, words = script.rng, script.truth, script.outer
    registry, name, version = reference(rng)
    image = rng.choice(("docker://", "")) + (f"{registry}#" if registry else "") + name + version
    truth.container = docker(registry, name, version)
    if script.some(0.3):
        image = truth.container = rng.choice(("HERE/torch.sqsh", "./torch.sqsh"))
    odd = rng.choice(("", "", "", "", "", "", "name", "save", "alone", "exec", "none", "unknown", "mount"))
    if odd in ("alone", "exec", "none"):
        truth.refused = {"none": "on the host"}.get(odd, "--container-name")
    elif odd == "unknown":
        truth.refused, image = "known only at run time", ""
        words += ["--container-image=$IMAGE"]
    if odd in ("name", "alone", "exec"):
        value = "train" + (":exec" if odd == "exec" else "")
        script.place(words, "--container-name", value)
        truth.said += ["--container-name=train"] if odd == "name" else []
    if odd == "save":
        truth.refused = "--container-save"
        words += script.valued("--container-save", "/images/new.sqsh")
    if image and odd not in ("alone", "none"):
        script.place(words, "--container-image", image)
    pyxis_words(script)
    if odd == "mount":
        truth.refused = "mount"
        words += ["--container-mounts=data:/mnt"]
        script.head = [line for line in script.head if "container-mounts" not in line]
    if odd == "none" and not any("container-" in word for word in (*words, *script.head)):
        script.place(words, "--container-workdir", "/w")


def edf(script: Script) -> None:
    """srun --environment=NAME|PATH, a file with image, mounts, workdir, env and annotations."""
    rng, truth = script.rng, script.truth
    name, file = rng.choice((("torch", "torch"), ("./ngc.toml", "ngc"), ("HERE/ngc.toml", "ngc")))
    registry, repository, version = reference(rng)
    truth.container = docker(registry, repository, version)
    image = (f"{registry}#" if registry else "") + repository + version
    if script.some(0.2):
        image = truth.container = "HERE/torch.sqsh"
    lines, mounts = [f'image = "{image}"'], list[str]()
    for source in rng.sample(DIRECTORIES, rng.choice((0, 1, 2))):
        truth.mounts.append(source + rng.choice((":/mnt", ":/w/in")) + rng.choice(("", ":ro")))
        mounts.append(f'"{truth.mounts[-1]}"')
    if mounts:
        lines.append(f"mounts = [{', '.join(mounts)}]")
    if script.some(0.5):
        truth.workdir = "/workspace"
        lines.append('workdir = "/workspace"')
    odd = rng.choice((*[""] * 14, "image", "other", "base", "none", "home", "entry", "broken", "variable"))
    lines += {
        "base": ['base_environment = "common"'], "entry": ["entrypoint = true"], "broken": ["mounts = ["],
        "variable": ['image_ = ""'],
    }.get(odd, [])  # fmt: skip
    if odd == "variable":
        lines = ['image = "${REGISTRY}#a/b"', *lines[1:-1]]
    if script.some(0.4):
        truth.variables["MODE"] = "fast"
        lines += ["[env]", 'MODE = "fast"']
    if script.some(0.4):
        truth.options.append("--annotation=com.hooks.cxi.enabled=true")
        lines += rng.choice((
            ["[annotations]", 'com.hooks.cxi.enabled = "true"'], ["[annotations.com.hooks.cxi]", 'enabled = "true"'],
        ))  # fmt: skip
    if odd != "none":
        truth.files[f"{file}.toml"] = "\n".join([*lines, ""])
    script.place(script.outer, "--environment", name if odd != "image" else "nvcr.io#nvidia/pytorch:25.01")
    if odd == "other":
        script.outer += script.valued("--container-image", "ubuntu")
    if odd == "home":
        script.outer.append("--container-mount-home")
    elif script.some(0.2):
        script.outer.append("--no-container-mount-home")
    truth.refused = {
        "image": "names an EDF", "other": "--container-image", "base": "base_environment in", "none": "was not found",
        "home": "--container-mount-home", "entry": "entrypoint in", "broken": "cannot read the EDF",
        "variable": "known only at run time",
    }.get(odd, "")  # fmt: skip


def uenv(script: Script) -> None:
    """srun --uenv=LABEL|FILE[:MOUNT],... --view=VIEW,..."""
    rng, truth = script.rng, script.truth
    truth.container = rng.choice(
        ("prgenv-gnu/24.11:v1", "prgenv-gnu", "icon/25.2@daint%gh200", "HERE/icon.squashfs",
         "editors/24.7,prgenv-gnu/24.11:v1")
    )  # fmt: skip
    odd = rng.choice(("", "", "", "", "none", "image", "mount"))
    if odd == "image":
        truth.refused = "takes a label"
    elif odd == "mount":
        truth.refused, truth.container = "mount point of its own", "./my.squashfs:/user-tools"
    if odd != "none":
        script.place(script.outer, "--uenv", truth.container if odd != "image" else "docker://ubuntu:24.04")
    else:
        truth.refused = "on the host"
    if script.some(0.7) or odd == "none":
        view = rng.choice(("default", "prgenv-gnu:default", "default,modules"))
        truth.options.append(f"--view={view}")
        script.place(script.outer, "--view", view)


def shifter(script: Script) -> None:
    """srun shifter --image=docker:NAME[:TAG] ..., or with the image in the head."""
    rng, truth = script.rng, script.truth
    registry, name, version = reference(rng)
    version = version.partition("@")[0]
    truth.container = docker(registry, name, version)
    image = rng.choice(("docker:", "docker:", "")) + (f"{registry}/" if registry else "") + name + version
    odd = rng.choice(("", "", "", "", "", "none", "slashes", "custom", "entry"))
    if odd == "slashes":
        truth.refused, image = "docker:NAME", f"docker://{name}"
    elif odd == "custom":
        truth.refused, image = "store", "custom:mine"
    words = ["shifter"]
    options = list[str]()
    if odd == "none":
        truth.refused = "on the host"
    elif script.some(0.5):
        script.head.append(f"--image={image}")
    else:
        options += script.valued(rng.choice(("--image", "--image")), image)
    if odd == "entry":
        truth.refused = "--entrypoint"
        options.append("--entrypoint")
    if script.some(0.4) or odd == "none":
        truth.options.append("--module=gpu,nccl-plugin")
        options += script.valued("--module", "gpu,nccl-plugin")
    if script.some(0.4):
        truth.mounts = ["/data:/mnt:ro", "/s:/w"][: rng.choice((1, 2))]
        options += script.valued("--volume", ";".join(truth.mounts))
    if script.some(0.3):
        truth.workdir = "/mnt"
        options += script.valued("--workdir", "/mnt")
    if script.some(0.4):
        truth.variables["MODE"] = "fast"
        options += ["--env=MODE=fast"]
    script.inner = [*words, *options]


def podman(script: Script) -> None:
    """srun podman-hpc run --rm ... IMAGE PROGRAM."""
    rng, truth = script.rng, script.truth
    registry, name, version = reference(rng)
    truth.container = docker(registry, name, version)
    image = rng.choice(("docker://", "", "")) + (f"{registry}/" if registry else "") + name + version
    odd = rng.choice(("", "", "", "", "", "#", "detach", "envfile"))
    words = list[str]()
    words += rng.sample(["--rm", "-i"], rng.choice((0, 1, 2)))
    for switch in rng.sample(("--gpu", "--mpi", "--privileged", "--nccl"), rng.choice((0, 1, 2))):
        truth.options.append(switch)
        words.append(switch)
    if script.some(0.4):
        truth.options.append("--shm-size=16g")
        words += script.valued("--shm-size", "16g")
    if script.some(0.3):
        user = rng.choice(("1000:1000", "root"))
        truth.options.append(f"--user={user}")
        words += script.valued(rng.choice(("--user",)), user)
    for source in rng.sample(DIRECTORIES, rng.choice((0, 1, 2))):
        target, flags = rng.choice(("/mnt", "/w/in")), rng.choice(("", "ro"))
        if any(f":{target}" in mount for mount in truth.mounts):
            continue
        keyed = script.some(0.3)
        truth.mounts.append(":".join(filter(None, (source, target, flags))))
        value = (
            f"type=bind,source={source},target={target}" + (",readonly" if flags else "") if keyed else truth.mounts[-1]
        )
        words += (
            script.valued("--mount" if keyed else "--volume", value) if script.some(0.7) or keyed else ["-v", value]
        )
    if script.some(0.5):
        truth.workdir = "/mnt"
        words += rng.choice((["-w", "/mnt"], ["--workdir=/mnt"]))
    if script.some(0.4):
        truth.variables["MODE"] = "fast"
        words += rng.choice((["-e", "MODE=fast"], ["--env=MODE=fast"]))
    if odd == "#":
        truth.refused, image = "Enroot's", "nvcr.io#nvidia/pytorch:25.01"
    elif odd == "detach":
        truth.refused = "--detach"
        words.append("-d")
    elif odd == "envfile":
        truth.refused = "--env-file"
        words.append("--env-file=vars")
    script.inner = ["podman-hpc", "run", *words, f"'{image}'"]


def sarus(script: Script) -> None:
    """srun sarus run ... IMAGE PROGRAM."""
    rng, truth = script.rng, script.truth
    registry, name, version = reference(rng)
    truth.container = docker(registry, name, version)
    image = (f"{registry}/" if registry else "") + name + version
    odd = rng.choice(("", "", "", "", "scheme", "load", "mount"))
    words = list[str]()
    if script.some(0.5):
        words.append("--mpi")
        truth.said.append("--mpi")
    if script.some(0.5):
        truth.mounts.append("/data:/mnt")
        words.append("--mount=type=bind,source=/data,destination=/mnt")
    if script.some(0.3):
        truth.workdir = "/mnt"
        words += rng.choice((["-w", "/mnt"], ["--workdir=/mnt"]))
    if odd == "scheme":
        truth.refused, image = "takes no docker://", f"docker://{name}"
    elif odd == "load":
        truth.refused, image = "store", "load/library/mine:1"
    elif odd == "mount":
        truth.refused = "mount"
        words.append("--mount=type=bind,source=/a")
    script.inner = ["sarus", "run", *words, image]


SYSTEMS: dict[str, Callable[[Script], None]] = {
    "pyxis": pyxis, "edf": edf, "uenv": uenv, "shifter": shifter, "podman-hpc": podman, "sarus": sarus,
}  # fmt: skip
