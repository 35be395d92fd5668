"""Converts the container that a scheduler starts to the keys of a job file, or says why no file can have it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from stackyard.core.errors import InputError
from stackyard.inputs.reading.imagename import DOCKER, image_name
from stackyard.launch.request.intent import OWN_DIRECTORY
from stackyard.lint.fix.edf_file import opened
from stackyard.lint.fix.making import IntentDraft
from stackyard.lint.launches import Launch
from stackyard.lint.rules.base import Case, is_template
from stackyard.lint.shell.words import is_known, shown
from stackyard.lint.systems import EDF, PYXIS, SARUS, SHIFTER, UENV
from stackyard.lint.systems.uses import ContainerUse, Given, use_of


def enclose(case: Case, making: IntentDraft, chain: Sequence[Launch]) -> None:
    """Carry over image, mounts, directory and further words of the container around the ranks, if it is of a system.

    A job file that lacked one of them would run on the bare host, or elsewhere in the image: then none is made.
    """
    use = use_of(case, chain)
    if use is None:
        return
    reasons = _refused(use)
    if use.system is EDF and not reasons:
        use, wrong = opened(use)
        reasons = [(use.line, why) for why in wrong] or _refused(use)
    making.refused += [(line, f"{use.system.name}: {why}") for line, why in reasons]
    if reasons:
        return
    mounts = [str(bind) for bind, _ in use.binds[0]]
    making.values.update(
        container=_image(use),
        runtime=use.system.runtime or None,
        mounts=tuple(filter(is_known, mounts)) or None,
        container_options=tuple(_kept(making, use)) or None,
    )
    for mount in mounts:
        if not is_known(mount):
            making.ask(use.line, f"the mount {mount}, which is known only at run time")
    _directory(making, use)


def _refused(use: ContainerUse) -> list[tuple[int, str]]:
    """Why no job file can have this container, with lines."""
    system, image = use.system, use.image
    reasons = [(each.line, f"{_option(each)}: {why}") for each in use.given if (why := _why(use, each))]
    if not image:
        return reasons or [(use.line, "no image: the program runs on the host, or not at all")]
    reasons += [(use.line, fault.text) for fault in system.faults(image) if fault.severity == "refused"]
    reasons += [(line, fault.text) for fault, line in use.binds[1]]
    if use.launch is None and system is SHIFTER:
        reasons.append((use.line, "no program behind shifter: it runs on the host"))
    if system is UENV and re.search(r"(?:^|,)[./][^,]*[:,]|,[./]", image):
        reasons.append((use.line, f"{image} has a file beside other images, or with a mount point of its own"))
    if is_template(image):
        reasons.append((use.line, f"the image {shown(image)} is known only at run time: write its name"))
    elif image.startswith(_STORES):
        reasons.append((use.line, f"{image} is in a store of a node or of a user: name it by its registry"))
    elif system.registry and not image.startswith((".", "/")):
        try:
            image_name(_image(use))  # as the job file's reader does
        except InputError as error:
            reasons.append((use.line, error.message))
    return reasons


_STORES = ("dockerd://", "load/", "custom:", "id:", "local:")
"""Images that only one machine, or one system, has."""


def _why(use: ContainerUse, given: Given) -> str:
    """Why a job file cannot have an option; empty if it can."""
    if given.place == "variable":
        return "a variable that all steps of the job would obey: write it as an option of srun"
    named = given.name == "container-name" and use.image and not given.value.endswith(":exec")
    meaning = use.system.meanings.get(given.name, "kept")
    if re.search(r"\btype=(?!bind)", given.value):
        return "a mount that is not of the host"
    return "" if named or meaning in ("image", "binds", "workdir", "variables", "kept", "ours") else meaning


def _image(use: ContainerUse) -> str:
    """The image as a job file has it: a path, ``docker://REGISTRY/NAME:TAG``, or a name of the system's own."""
    image = use.image
    if not use.system.registry or image.startswith((".", "/")):
        return image
    name = image.removeprefix(DOCKER).removeprefix("docker:" if use.system is SHIFTER else "")
    name = re.sub(r"^[^@/#:]+@(?!sha256:)", "", name)  # the login that Enroot looks up, as it does without one
    return DOCKER + name.replace("#", "/", 1)  # as it is written: a tag beside a digest stays


def _option(given: Given) -> str:
    return shown(f"--{given.name}" + (f"={given.value}" if given.value else ""))


def _kept(making: IntentDraft, use: ContainerUse) -> list[str]:
    """The words that the same runtime takes; variables with values become the job's own."""
    kept = list[str]()
    for given in use.given:
        meaning, (name, _, value) = use.system.meanings.get(given.name, "kept"), given.value.partition("=")
        if given.name == "container-name":
            making.note(given.line, f"{_option(given)}: each step of the job makes its container anew")
        elif meaning == "variables" and "=" in given.value:
            making.values["variables"] = {**(making.values.get("variables") or {}), name: shown(value)}
        elif use.system is SARUS and meaning in ("kept", "variables"):
            making.note(given.line, f"{_option(given)}: the site's runtime runs the image, and decides")
        elif meaning in ("kept", "variables"):
            kept.append(_option(given))
        if meaning in ("kept", "variables") and not is_known(given.value):
            making.ask(given.line, f"{_option(given)}, which is known only at run time")
    return kept


_SITES = ("container-remap-root", "container-mount-home", "container-entrypoint")


def _directory(making: IntentDraft, use: ContainerUse) -> None:
    """Say where the program starts, and who it is, where the script leaves that to the system."""
    own = use.system.encloses or use.system.positional
    making.values["workdir"] = (use.workdir if is_known(use.workdir) else "") or (OWN_DIRECTORY if own else None)
    if not is_known(use.workdir):
        making.ask(use.line, f"the directory {use.workdir} in the image, which is known only at run time")
    elif own and not use.workdir and not use.system.runtime:
        making.values["workdir"] = None
        making.ask(use.line, "the working directory is the image's own: set workdir, or leave this out for the job's")
    if use.encloses:
        lines = [line for line in making.values.get("prologue") or () if not line.startswith("export ")]
        say = making.ask if lines else making.note
        say(use.line, "the whole script runs in the image there, and of the job its ranks alone")
    given = {each.name.removeprefix("no-") for each in use.given}
    sites = [name for name in _SITES if name not in given]
    if use.system is PYXIS and sites:
        making.note(use.line, f"--{', --'.join(sites)}: the site's choice there, and off in the job")
