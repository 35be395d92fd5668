"""``stackyard image extend``: packages on top of a base's own Python."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stackyard.cli.context import Context
from stackyard.cli.help import verb
from stackyard.cli.images.files import show_base
from stackyard.cli.output import echo
from stackyard.core.errors import InputError

if TYPE_CHECKING:
    from stackyard.images.api import ContainerSetup, Packages, Proof
    from stackyard.inputs.api import Site


@verb(
    ("a package that is compiled with what the base has",
     "stackyard image extend powerai --name powerai-hvd --pip horovod --env HOROVOD_WITH_PYTORCH=1"),
    ("the pip packages of a file, compiled as its `build:` says, and its checks",
     "stackyard image extend powerai horovod.yaml --name powerai-hvd"),
    ("from a directory of packages", "stackyard image extend rocm --name rocm-2 --pip ours --find-links wheels"),
    name="extend", short_help="install packages on top of a base's own Python",
)  # fmt: skip
@click.argument("base", metavar="BASE")
@click.argument("file", metavar="[FILE]", required=False, type=click.Path(path_type=Path))
@click.option("--name", required=True, help="What the result is called: a base of its own.")
@click.option("--pip", "requirements", multiple=True, metavar="REQUIREMENT", help="As pip takes it.")
@click.option("--find-links", multiple=True, type=click.Path(path_type=Path), help="A directory of packages.")
@click.option("--env", "variables", multiple=True, metavar="NAME=VALUE", help="A variable for the build.")
@click.option("--before", multiple=True, metavar="LINE", help="A line of shell before the build, e.g. '. activate'.")
@click.option("--bind", "places", multiple=True, type=click.Path(path_type=Path), help="A directory it may see.")
@click.option("--dry-run", is_flag=True, help="Say what would be done; write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def extend(
    context: Context, /, base: str, file: Path | None, name: str, dry_run: bool, as_json: bool, **said: Any
) -> None:
    """Install packages on top of a base's own Python, in a virtual environment and a layer of its own.

    FILE is a stack.yaml: its pip packages, `build:` and checks. It is done in a container of BASE, by Apptainer, which
    sees nothing of this machine but pip's settings, --bind, and directories that variables of the build name by
    {env:NAME}. Compilers, CUDA and MPI are those of the base, which stays as it is.
    """
    from stackyard.deploy.api import writing
    from stackyard.images.api import extend_base, find_base, python_of_base

    workspace = context.workspace()
    site, yard = workspace.site, workspace.yard
    stored = find_base(workspace, base)
    packages = _packages(site, base, stored.base.platform, file, **said)
    if dry_run:
        python = python_of_base(stored, packages.given.activation)
        where = f"{python.kind} {python.path}"
        if packages.given.activation or stored.base.software.activate:
            where = f"the Python on the PATH that its activation sets ({where} by its files)"
        echo(f"would install {shlex.join(packages.requirements)} on {where} of {base}, as {name}")
        return
    with writing(workspace):
        done = extend_base(yard, stored, name, packages, _proof(site))
    show_base(done.kept, as_json)
    for notice in done.notices:
        context.notice(notice)


def _packages(
    site: Site, base: str, platform: str, file: Path | None, *, requirements: tuple[str, ...],
    find_links: tuple[Path, ...], variables: tuple[str, ...], before: tuple[str, ...], places: tuple[Path, ...],
) -> Packages:  # fmt: skip
    """The packages of the command line and the file together.

    Raises:
        InputError: neither names a package, or a file does not exist.
    """
    from dataclasses import replace

    from stackyard.images.api import Packages

    if file is None and not requirements:
        raise InputError("no packages given", hint="name them: --pip REQUIREMENT, or a FILE")
    missing = [place for place in (*find_links, *places) if not place.is_dir()]
    if missing:
        raise InputError(f"no such directory: {missing[0]}", hint="see --find-links and --bind")
    wrong = [variable for variable in variables if not variable.partition("=")[0].isidentifier() or "=" not in variable]
    if wrong:
        raise InputError(f"not a variable: {wrong[0]}", hint="write NAME=VALUE")
    packages = Packages(()) if file is None else _of_file(file, site, platform)
    return replace(
        packages, requirements=(*packages.requirements, *requirements),
        find_links=tuple(directory.absolute() for directory in find_links),
        variables=dict(text.partition("=")[::2] for text in variables), given=_given(site, base, before, places),
    )  # fmt: skip


def _of_file(file: Path, site: Site, platform: str) -> Packages:
    from stackyard.images.api import packages_of_variant
    from stackyard.inputs.api import load_stack

    variants = load_stack(file, site).variants
    if len(variants) != 1:
        raise InputError(f"{file} has {len(variants)} variants, and a base has one Python",
                         hint="write a file without `matrix:`")  # fmt: skip
    return packages_of_variant(variants[0], platform)


def _given(site: Site, base: str, before: tuple[str, ...], places: tuple[Path, ...]) -> ContainerSetup:
    from stackyard.images.api import ContainerSetup

    listed = site.bases.get(base)
    return ContainerSetup(listed.activate if listed else "", before, tuple(place.absolute() for place in places))


def _proof(site: Site) -> Proof:
    """The checks of a stack are judged here as in a module."""
    from stackyard.host.machine.probe import machine
    from stackyard.images.api import Proof
    from stackyard.verify.api import OwnCheck, judged_check, unmet_need

    return Proof(
        judge=lambda check, result: judged_check(OwnCheck.of(check.model_dump()), result),
        unmet=lambda check: unmet_need(check.needs.model_dump(), machine(), site),
    )
