"""Reads the stacks that a command names together, and reports all problems of all files at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from stackyard.core.errors import InputError, ManyErrors, StackyardError
from stackyard.core.progress import Progress
from stackyard.inputs.load import load_stack
from stackyard.inputs.models import Stack
from stackyard.inputs.stacks.naming import given
from stackyard.inputs.stacks.selection import choose, for_python, with_torch_backend
from stackyard.inputs.workspace import Workspace
from stackyard.lock.base.extension import looked_up


def load_stacks(
    files: Sequence[Path],
    workspace: Workspace,
    name: str | None = None,
    version: str | None = None,
    variants: Sequence[str] = (),
    python: str = "",
    torch_backend: str = "",
) -> tuple[Stack, ...]:
    """The stacks of all files, with their bases; a file named twice counts once.

    Args:
        name, version: replace those in the file.
        variants: the names of the requested variants, which every file must have; empty: all.
        python: the version of Python, in place of the files'.
        torch_backend: the build of torch, in place of the files' and the site's.

    Raises:
        InputError: the name or version is invalid for a module; a file is invalid or lacks a variant, or two files
            define the same version of the same stack; `ManyErrors` for several problems.
    """
    for option, text in (("--name", name), ("--version", version)):
        if text is not None:
            given(option, text)
    problems: list[StackyardError] = []
    stacks = []
    for file in dict.fromkeys(files):
        try:
            stack = load_stack(file, workspace.site, name, version)
            if python:
                stack = for_python(stack, python, partial(load_stack, file, workspace.site, name, version, python))
            stack = choose(looked_up(stack, workspace.yard), variants)
            stacks.append(with_torch_backend(stack, torch_backend) if torch_backend else stack)
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
    """Reject two files with the same version of one stack: users could not tell them apart."""
    by_name: dict[tuple[str, str], Stack] = {}
    for stack in stacks:
        for version in dict.fromkeys(v.version for v in stack.variants):
            other = by_name.setdefault((stack.name, version), stack)
            if other is not stack:
                raise InputError(
                    f"{other.file} and {stack.file} both define {stack.name}/{version}",
                    hint="deploy them one by one, one of them under another name: "
                    f"{Path(stack.file).name} --name {stack.name}-{Path(stack.file).stem}",
                )


def tell_notices(stacks: Sequence[Stack], progress: Progress) -> None:
    """Report each notice from reading the files once."""
    notices = [text for stack in stacks for variant in stack.wanted for text in variant.notices]
    for text in dict.fromkeys(notices):
        progress.notice(text)
