"""``stackyard image build FILE``: from a file of packages to an image, in one command and without a yard."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stackyard.cli.context import Context
from stackyard.core.errors import InputError

if TYPE_CHECKING:
    from stackyard.yard.api import BuildRecord

_SOURCES = ("docker://", "docker-archive:", "sif:", "folder:")


def is_file(word: str) -> bool:
    """Whether an argument is a file of packages, and not the name of a revision."""
    return Path(word).suffix in (".yaml", ".yml", ".txt")


def is_source(base: str) -> bool:
    """Whether a base is named by where it comes from, and not by its name in a yard."""
    return base.startswith(_SOURCES)


@contextmanager
def built(context: Context, file: Path, base: str, directory: Path) -> Iterator[tuple[Context, BuildRecord]]:
    """A revision of the packages of a file, and with it its base where that is named by its source.

    Both are in a yard of their own below a directory, which is removed at the end. The lock is beside the file, as that
    of a deploy: the next image of it has the same packages.

    Raises:
        InputError: the file is invalid, or has several variants; no such base.
        Exit: it was not built, or a check failed; the reasons are printed.
    """
    from stackyard.cli.display import display
    from stackyard.cli.publish.deploy import report
    from stackyard.deploy.api import deploy_request, deploy_stacks
    from stackyard.host.files.scratch import scratch
    from stackyard.images.api import SCRATCH_BASE, BaseImport, find_base, import_base, is_reference, source_of
    from stackyard.yard.api import record_of

    if not is_source(base) and base != SCRATCH_BASE and not is_reference(base):
        find_base(context.workspace(), base)  # before the build, not after it
    with scratch("image", directory) as work:
        own = replace(context, yard_option=work / "yard")
        options: dict[str, Any] = {"command": context.command, "allow_unverified": True}
        request = deploy_request((file,), own.workspace(), **options)
        if any(variant.image != "prefix" and not variant.on for stack in request.stacks for variant in stack.variants):
            request = deploy_request((file,), own.workspace(), image="prefix", **options)  # it is packed once
        variants = [variant for stack in request.stacks for variant in stack.wanted]
        if len(variants) != 1:
            raise InputError(f"{file} has {len(variants)} variants, and an image has one",
                             hint="deploy it, and build the image of each revision")  # fmt: skip
        if is_source(base):
            import_base(own.yard(), BaseImport(source_of(base), "base"), on_wait=context.notice)
        with display() as progress:
            result = deploy_stacks(request, progress)
        (outcome,) = result.outcomes
        if not result.ok:
            report(own, result, request, progress.notices, as_json=False)  # raises Exit
        yield own if is_source(base) else context, record_of(own.yard(), outcome.module)
