"""The form of a revision: a directory tree, or an image packed before the build is marked as finished."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stackyard.core.progress import Progress
from stackyard.deploy.plan import Task
from stackyard.inputs.models import Site
from stackyard.yard.kinds.table import refusal
from stackyard.yard.revision.record import BuildRecord

if TYPE_CHECKING:
    from stackyard.deploy.deploy import Request


def in_its_form(task: Task, record: BuildRecord, request: Request, progress: Progress) -> BuildRecord:
    """The record of a finished build, after converting its files to the form that the stack or the site requests.

    Raises:
        MissingError, StackyardError: as for `images.form.squash` and `images.wrap.make.wrap`.
    """
    if task.variant.wrap is not None:
        from stackyard.deploy.wraps import directory_of
        from stackyard.images.wrap.make import wrap

        progress.phase(task.module, "image", task.variant.wrap.image)
        return wrap(record, task.variant.wrap, request, directory_of(task.stack))
    if not _is_image(task, record, request.site, progress):
        return record
    if record.origin.adopted_from:
        from stackyard.images.adopted import pack

        progress.phase(task.module, "image", task.paths.image.name)
        return pack(record)
    from stackyard.images import form
    from stackyard.images.squashfs import order

    progress.phase(task.module, "image", task.paths.image.name)
    named = task.variant.environment
    requested = [requirement.name for requirement in named.conda] + [requirement.name for requirement in named.pip]
    return form.squash(record, order=order.traced(record, requested), read_back=not request.allow_unverified)


def _is_image(task: Task, record: BuildRecord, site: Site, progress: Progress) -> bool:
    """Whether to keep the files in an image: the stack requests it, or there are more than the site's limit."""
    inodes, most = record.disk.inodes_new + record.disk.inodes_shared, site.fs.max_inodes
    is_over = bool(most and inodes > most and record.origin.owns_files)
    if why := refusal("squashfs", record.origin.kind, on_base=bool(record.base_id)):
        if is_over:
            progress.notice(f"{task.module}: {inodes:,} files, the site's limit is {most:,}; {why}")
        return False
    if is_over and task.variant.image == "prefix":
        text = f"{inodes:,} files, the site's limit is {most:,} (fs: max_inodes)"
        progress.notice(f"{task.module} is kept in an image: {text}")
        return True
    return task.variant.image == "squashfs"
