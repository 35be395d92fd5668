"""The stacks that a command line names, read together: every problem of every file at once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stackyard.errors import InputError, ManyErrors, StackyardError

if TYPE_CHECKING:
    from stackyard.progress import Progress
    from stackyard.spec.models import Site, Stack


def load_stacks(files: Sequence[Path], site: Site, name: str | None, version: str | None) -> tuple[Stack, ...]:
    """The stacks of all files; a file named twice counts once.

    Raises:
        InputError: a file is invalid, or two files define the same version of the same stack; `ManyErrors` for
            several problems.
    """
    from stackyard.spec.load import load_stack

    problems: list[StackyardError] = []
    stacks = []
    for file in dict.fromkeys(files):
        try:
            stacks.append(load_stack(file, site, name, version))
        except ManyErrors as error:
            problems += error.problems
        except InputError as error:
            problems.append(error)
    if len(problems) == 1:
        raise problems[0]
    if problems:
        raise ManyErrors(problems)
    _check_distinct(stacks)
    return tuple(stacks)


def _check_distinct(stacks: Sequence[Stack]) -> None:
    """Refuse two files that define the same version of one stack: users could not tell them apart."""
    made: dict[tuple[str, str], Stack] = {}
    for stack in stacks:
        for version in dict.fromkeys(v.version for v in stack.variants):
            other = made.setdefault((stack.name, version), stack)
            if other is not stack:
                raise InputError(
                    f"{other.file} and {stack.file} both define {stack.name}/{version}",
                    hint="deploy them one by one, one of them under another name: "
                    f"{Path(stack.file).name} --name {stack.name}-{Path(stack.file).stem}",
                )


def tell(stacks: Sequence[Stack], progress: Progress) -> None:
    """Report each notice from reading the files once."""
    notices = [text for stack in stacks for variant in stack.variants for text in variant.notices]
    for text in dict.fromkeys(notices):
        progress.notice(text)
