"""Plans staging: the files that ``--stage`` copies to the nodes, and their place. `check_stage` checks them."""

from __future__ import annotations

import os
from pathlib import Path

from stackyard.core.errors import InputError
from stackyard.inputs.reading.imagename import is_image_name
from stackyard.inputs.sites.sitemodels import NodeKind
from stackyard.launch.plan.context import PlanContext
from stackyard.launch.plan.model import Reason, Stage
from stackyard.launch.request.intent import Intent

STACK = "stack"
"""The word for the image that the ranks run in; a file of that name is ./stack."""
VARIABLE = "STACKYARD_STAGE"
STAGED_IMAGE = "STACKYARD_STAGED_IMAGE"
"""The revision whose image is in `VARIABLE`; its launcher reads both (image/launcher)."""


def plan_stage(intent: Intent, kind: NodeKind, context: PlanContext) -> Stage:
    """The files and directories of a job that are copied to every node.

    Raises:
        InputError: two paths have the same name, a path is a prefix, or ``stack`` is not an image.
    """
    paths = staged_paths(intent, context.stack.image)
    names: dict[str, str] = {}
    for path in paths:
        if context.stack.prefix and Path(context.stack.prefix).is_relative_to(path):
            raise _prefix(path)
        name = Path(path).name
        if not name:
            raise InputError(f"--stage {path} has no name", hint="name a file or a directory below it")
        if name in names:
            hint = "rename one of them, or stage the directory that has both"
            raise InputError(f"--stage: {names[name]} and {path} have the same name on the nodes", hint=hint)
        names[name] = path
    if not names:
        return Stage()
    base = _base(intent, kind, context)
    where = f"in {base} of each node" if base else "on each node's own disk"
    reasons = tuple(
        Reason((f"${VARIABLE}/{name}",), f"a copy of {path} {where}, made before the ranks start")
        for name, path in names.items()
    )
    return Stage(tuple(names.items()), base, reasons)


def staged_paths(intent: Intent, stack_image: str = "") -> list[str]:
    """The absolute paths. Raises InputError: ``stack`` is staged, but neither container nor stack is an image."""
    cwd = Path(intent.cwd or Path.cwd()).absolute()
    paths = (os.path.normpath(cwd / (_image(intent, stack_image) if word == STACK else word)) for word in intent.stage)
    return list(dict.fromkeys(paths))


def stack_variables(intent: Intent, context: PlanContext) -> dict[str, str]:
    """The variables that make the stack's launcher mount the copied image: the revision."""
    stack = context.stack
    staged = not intent.container and stack.image and stack.image in staged_paths(intent, stack.image)
    return {STAGED_IMAGE: stack.folder} if staged else {}


def staged_image(intent: Intent) -> str:
    """The path of a staged image on a node, with a rank's variable in it; empty if the image is not staged."""
    path = image_path(intent)
    return f"${{{VARIABLE}}}/{Path(path).name}" if path and path in staged_paths(intent) else ""


def image_path(intent: Intent) -> str:
    """The container's image, absolute; empty without one, and for that of a registry."""
    if not intent.container or is_image_name(intent.container):
        return ""
    return os.path.normpath(Path(intent.cwd or Path.cwd(), intent.container).absolute())


def check_stage(intent: Intent, stack_image: str = "") -> None:
    """Raise InputError if a path does not exist or cannot be read. The content of directories is read in the job."""
    images = {image_path(one) for one in (intent, *map(intent.of_role, intent.roles))}
    for path in staged_paths(intent, stack_image):
        if not Path(path).exists():
            hint = "give a path on a file system that the nodes share"
            raise InputError(f"--stage: {path} not found", hint=hint)
        if not os.access(path, os.R_OK | (os.X_OK if Path(path).is_dir() else 0)):
            raise InputError(f"--stage: cannot read {path}: permission denied", hint="ask its owner, or stage a copy")
        if not (Path(path).is_dir() or Path(path).is_file()):
            raise InputError(f"--stage: {path} is neither a file nor a directory", hint="stage what a program reads")
        if path in images and Path(path).is_dir():  # its links are meant from within
            hint = "make a file of it, e.g. mksquashfs DIRECTORY image.sqfs"
            raise InputError(f"--stage: the image {path} is a directory, and only a file can be staged", hint=hint)
        if (Path(path) / "conda-meta").is_dir() or (Path(path) / "pyvenv.cfg").is_file():
            raise _prefix(path)


def _image(intent: Intent, stack_image: str) -> str:
    if intent.container or (stack_image and not intent.roles):
        return intent.container or stack_image
    if any(role.container for role in intent.roles.values()):
        raise InputError("--stage stack: the roles have images of their own", hint="name them: --stage IMAGE")
    raise InputError(
        "--stage stack: this job runs in no image, and the prefix of a stack does not work at another path",
        hint="use a stack with `image: squashfs`, or --container IMAGE; for a file called stack write ./stack",
    )


def _prefix(path: str) -> InputError:
    """The error for a prefix: its programs contain its own path, so a copy would still use the original."""
    return InputError(
        f"--stage {path}: a prefix does not work at another path, since its programs contain its own",
        hint="make an image of it, and use --container IMAGE --stage stack",
    )


def _base(intent: Intent, kind: NodeKind, context: PlanContext) -> str:
    """The node's local disk, if the job has it: by request, or by default."""
    on_request = bool(kind.local_disk_constraint) or context.batch.disk_on_request
    return kind.local_disk if intent.batch.local_disk or not on_request else ""
