"""Whether the images of a deploy can be made and used on this machine: asked before the work, which takes an hour.

An image is read back, and its revision verified, where it is mounted. With `--allow-unverified` a deploy does without:
for a build host where nothing can be mounted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from stackyard.deploy.plan import Task
from stackyard.inputs.models import Variant
from stackyard.lock.base import extension as onbase
from stackyard.yard.generation import generations
from stackyard.yard.kinds.table import refusal

if TYPE_CHECKING:
    from stackyard.deploy.deploy import Request

HINT = (
    "deploy on a machine that can (`stackyard image status` shows the ways), or with --allow-unverified: "
    "it is then verified on such a machine, by `stackyard verify --deep REV`"
)


def is_image(variant: Variant) -> bool:
    """Whether a variant becomes an image: of its own files, or a third-party one that is wrapped."""
    if variant.wrap is not None:
        return True
    return variant.image == "squashfs" and not refusal("squashfs", "built", on_base=bool(variant.on))


def cannot_mount() -> bool:
    """Whether this machine has no way to mount an image."""
    from stackyard.images.squashfs import possible

    return bool(possible.lacking())


def require_before_lock(request: Request) -> None:
    """Raise where this machine cannot make the images of stacks that the yard does not have yet.

    `require_before_build` asks for stacks that the yard has: what of them is built already needs no image.

    Raises:
        MissingError: it cannot pack or mount them.
    """
    known = {entry.stack for entry in generations.entries(request.yard)}
    new = [stack for stack in request.stacks if stack.name not in known]
    _require([(stack.name, variant) for stack in new for variant in stack.variants], request)


def require_before_build(request: Request, tasks: Sequence[Task]) -> None:
    """Raise where this machine cannot make the images of these builds, or read the images of their bases.

    Raises:
        DiskFull: the disk has no room for the images of packages of this size.
        MissingError: it cannot pack or mount them.
    """
    building = [task for task in tasks if task.action == "build"]
    _require_room([task for task in building if task.variant.wrap is None and is_image(task.variant)])
    _require([(task.module, task.variant) for task in building], request)
    for module, base in {task.module: task.variant.base for task in building}.items():
        if base is not None:
            from stackyard.images.squashfs import possible

            record = onbase.record_of(base)
            possible.require_readable(record, f"cannot build {module} on {record.module}")


def _require_room(tasks: Sequence[Task]) -> None:
    """Require room for the images alone: packed, the files of a package take as much as in its archive."""
    if tasks:
        from stackyard.images import room

        size = sum(package.size for task in tasks for package in task.locked.conda)
        size += sum(package.size for task in tasks for package in task.locked.pip)
        what = f"cannot deploy {tasks[0].module} as an image"
        room.require_bytes(tasks[0].paths.root, size, what)


def _require(variants: Iterable[tuple[str, Variant]], request: Request) -> None:
    images = [(name, variant) for name, variant in variants if is_image(variant)]
    if not images:
        return
    from stackyard.images.squashfs import possible

    if any(variant.wrap is None for _, variant in images):
        possible.require_packing()
    if not request.allow_unverified:
        possible.require_mounting(f"cannot deploy {images[0][0]} as an image", HINT)
