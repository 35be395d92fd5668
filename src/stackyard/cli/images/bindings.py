"""``stackyard bindings``: the host's libraries in an image, detected, shown and checked."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stackyard.cli.context import Context
from stackyard.cli.findings import show_finding
from stackyard.cli.help import VerbGroup, verb
from stackyard.cli.output import echo, emit, show_json, show_text
from stackyard.core.errors import InputError, cause
from stackyard.core.findings import counted

if TYPE_CHECKING:
    from stackyard.core.findings import Finding
    from stackyard.images.api import BindingReport, BindingRequest, Rank
    from stackyard.inputs.api import HostBindings

FILE = "bindings.yaml"
KINDS = ("bindings", "site", "lua", "tcl", "stack")


@click.group(cls=VerbGroup, examples=(
    ("find the loaded MPI and all that it needs, and write bindings.yaml", "stackyard bindings detect"),
    ("whether an image can use it, and why not", "stackyard bindings check app.sif"),
))  # fmt: skip
def command() -> None:
    """What an image gets from this host when it runs: the MPI, the network's and the GPUs' libraries.

    `detect` writes them to a file with the reason of each; `launch.container.bindings` of site.yaml names it.
    """


@verb(
    ("the MPI that is loaded, and all that it needs", "stackyard bindings detect"),
    ("another MPI, printed only", "stackyard bindings detect --mpi /opt/openmpi-4.1.4 --dry-run"),
    ("as documented for a machine, with its modules loaded", "stackyard bindings detect --profile frontier"),
    ("with what a program opens on a node", 'stackyard bindings detect --trace "srun -n2 --mpi=pmi2" -- ./app'),
    group=command, short_help="find the host's MPI and all that it needs",
)  # fmt: skip
@click.argument("program", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--mpi", default="", metavar="PATH", help="An MPI: its library, its mpiexec, or the directory above its lib."
)
@click.option("--profile", default="", metavar="NAME", help="As documented for a machine (see `show --profiles`).")
@click.option(
    "--trace", default="", metavar="LAUNCHER", help="Also what PROGRAM opens, started by LAUNCHER under strace."
)
@click.option("-o", "--output", type=click.Path(path_type=Path), default=FILE, show_default=True, help="File to write.")
@click.option("--replace", is_flag=True, help="Write over a file that exists.")
@click.option("--dry-run", is_flag=True, help="Print the file only.")
@click.option("--json", "as_json", is_flag=True, help="Print the bindings as JSON; write nothing.")
def detect(
    context: Context, program: tuple[str, ...], mpi: str, profile: str, trace: str, output: Path, replace: bool,
    dry_run: bool, as_json: bool,
) -> None:  # fmt: skip
    """Write a bindings.yaml for the MPI of this machine, each path with its reason. Run it on a compute node.

    Libraries are found by the loader's rules, from the MPI's own; components that it opens by dlopen with their
    directories. Without --mpi and --profile: the MPI that LD_LIBRARY_PATH or the first mpiexec on PATH leads to.
    """
    bindings, notes = _detected(context, mpi, profile)
    if program and not trace:
        raise InputError("cannot run PROGRAM: no launcher given", hint='name it: --trace "srun -n2 --mpi=pmi2"')
    if trace:
        from stackyard.images.api import traced_bindings

        bindings = traced_bindings(bindings, trace, program)
    for note in notes:
        context.notice(note)
    if as_json:
        show_json(bindings.model_dump())
    else:
        _write(context, bindings, None if dry_run else output, replace)


def _detected(context: Context, mpi: str, profile: str) -> tuple[HostBindings, tuple[str, ...]]:
    from stackyard.images.api import bindings_of_this_machine, read_profile, tested_bindings

    if mpi and profile:
        raise InputError("cannot use --mpi with --profile: a profile names its MPI", hint="leave one of them out")
    if profile:
        bindings, left = bindings_of_this_machine(read_profile(profile, os.environ, context.site().profiles))
        return bindings, tuple(f"left out: {path} does not exist on this machine" for path in left)
    from stackyard.images.api import detect_bindings

    detection = detect_bindings(os.environ, mpi=mpi)
    return tested_bindings(detection.bindings), detection.notes


def _write(context: Context, bindings: HostBindings, output: Path | None, replace: bool) -> None:
    from stackyard.images.api import bindings_text

    text = bindings_text(bindings, (f"{bindings.summary}. Review it; each path has its reason.",))
    if output is None:
        emit(text)
        return
    if output.exists() and not replace:
        raise InputError(f"cannot write {output}: it exists", hint="--replace writes over it, -o names another file")
    _write_text(output, text)
    paths = len(bindings.libraries) + len(bindings.binds)
    echo(f"wrote {output}: {bindings.summary}, {paths} paths")
    echo(f"    in site.yaml: launch: {{container: {{bindings: {output}}}}}")


@verb(
    ("what images get from this host, and why", "stackyard bindings show"),
    ("for those who call the runtime themselves: a module", "stackyard bindings show --as lua > bindings.lua"),
    ("the same, to be published", "stackyard bindings show --as stack > stack.yaml && stackyard deploy stack.yaml"),
    ("the machines with a profile", "stackyard bindings show --profiles"),
    group=command, short_help="the bindings as a file, as settings of a site, or as a module",
)  # fmt: skip
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--as", "kind", type=click.Choice(KINDS), default="bindings", help="In which form.")
@click.option("--runtime", type=click.Choice(("apptainer", "singularity")), default="apptainer", help="For a module.")
@click.option("--profiles", is_flag=True, help="List the machines with a profile.")
@click.option("--json", "as_json", is_flag=True, help="Print the bindings as JSON.")
def show(context: Context, file: Path | None, kind: str, runtime: str, profiles: bool, as_json: bool) -> None:
    """Show FILE, else the file that site.yaml names, else bindings.yaml of this directory.

    Exit status 4: a path does not exist on this machine; no program would start in an image.
    """
    from stackyard.images.api import missing_here, profile_names

    if profiles:
        names = profile_names(context.site().profiles)
        show_json(names) if as_json else show_text("\n".join(names))
        return
    bindings = _bindings(context, file)
    missing = missing_here(bindings)
    if as_json:
        show_json({**bindings.model_dump(), "missing": missing})
    else:
        emit(_text(bindings, kind, runtime))
        if kind in ("lua", "tcl", "stack") and bindings.options:
            options = " ".join(option.option for option in bindings.options)
            context.notice(f"no variable of {runtime} holds `options`: give them to each command: {options}")
    for path in missing:
        context.notice(f"{path} does not exist on this machine")
    if missing:
        raise click.exceptions.Exit(4)


def _text(bindings: HostBindings, kind: str, runtime: str) -> str:
    from stackyard.images.api import bindings_text, container_text, expanded_bindings, stack_text
    from stackyard.inputs.api import ContainerPolicy

    if kind == "bindings":
        return bindings_text(bindings)
    if kind == "site":
        return container_text(bindings.applied(ContainerPolicy()))
    if kind == "stack":
        return stack_text(expanded_bindings(bindings), runtime)
    return _module(expanded_bindings(bindings), kind, runtime)


def _module(bindings: HostBindings, kind: str, runtime: str) -> str:
    """The modulefile ``stackyard-bindings``."""
    from stackyard.expose.api import Page, render_lua_page, render_tcl_page
    from stackyard.images.api import bindings_change, bindings_summary

    text = bindings_summary(bindings, runtime)
    content = Page(
        module="stackyard-bindings", stack="stackyard-bindings", help=text, whatis=(("Description", text),), family="",
        conflict=(), depends_on=(), extensions=(), deprecated="", notice="", change=bindings_change(bindings, runtime),
    )  # fmt: skip
    return render_lua_page(content) if kind == "lua" else render_tcl_page(content)


def _bindings(context: Context, file: Path | None) -> HostBindings:
    from stackyard.inputs.api import load_bindings

    return load_bindings(_file(context, file))


@verb(
    ("what stops an image from using the host's MPI, and what to do", "stackyard bindings check app.sif"),
    ("make its RPATHs harmless, by copies that are bound over", "stackyard bindings check --repair lib app.sif"),
    ("what each rank loads", 'stackyard bindings check --run "srun -N2 --mpi=pmi2" app.sif -- /app'),
    group=command, short_help="whether an image can use the host's libraries",
)  # fmt: skip
@click.argument("image", type=click.Path(path_type=Path))
@click.argument("program", nargs=-1, type=click.UNPROCESSED)
@click.option("--bindings", "file", type=click.Path(path_type=Path), help="The bindings (default: as for `show`).")
@click.option(
    "--pmi",
    default="",
    metavar="KIND",
    help="As srun --mpi names it (default: that of --run, else of site.yaml, else of Slurm).",
)
@click.option(
    "--repair", type=click.Path(path_type=Path), metavar="DIR", help="Keep repaired copies in DIR; bind them."
)
@click.option("--run", "launcher", metavar="LAUNCHER", help="Start PROGRAM in the image, and see what each rank loads.")
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON.")
def check(
    context: Context, image: Path, program: tuple[str, ...], file: Path | None, pmi: str, repair: Path | None,
    launcher: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Check whether the programs of IMAGE load the host's MPI, and whether its libraries can run there.

    IMAGE is a directory, a SquashFS file or a SIF file; nothing in it is run without --run. Exit status 3: they do not.
    """
    from stackyard.images.api import check_bindings

    if program and launcher is None:
        raise InputError(
            "cannot run PROGRAM: no launcher given", hint='name it: --run "srun -n2 --mpi=pmi2", or --run ""'
        )
    request = _asked(context, file, pmi or _pmi_of(launcher or ""))
    done = check_bindings(image, request)
    if repair is not None and done.rpaths:
        request = _repair(context, image, done, request, repair, file)
        done = check_bindings(image, request)
    ranks = _ranks(context, image, request, launcher, program) if launcher is not None else []
    findings = [*done.findings, *(finding for rank in ranks for finding in rank.findings)]
    if as_json:
        both = {"findings": [finding.to_json() for finding in findings], "ranks": [rank.to_json() for rank in ranks]}
        show_json({**done.to_json(), **both})
    else:
        _show_checked(done, findings, ranks)
    if any(finding.severity == "refused" for finding in findings):
        raise click.exceptions.Exit(3)


def _pmi_of(launcher: str) -> str:
    """The kind of PMI in a launcher's words, or empty."""
    match = re.search(r"--mpi[= ](\S+)", launcher)
    return match.group(1) if match else ""


def _asked(context: Context, file: Path | None, pmi: str) -> BindingRequest:
    """The requirements of site and bindings on an image."""
    from stackyard.host.machine.daemons import daemons
    from stackyard.host.machine.probe import machine
    from stackyard.images.api import BindingRequest, drivers_of, drivers_of_machine

    site = context.site()
    pmi = pmi or site.scheduler.mpi or daemons(os.environ).pmi
    drivers = drivers_of(site, drivers_of_machine(machine()))
    return BindingRequest(_bindings(context, file), site.launch.container, pmi, drivers)


def _repair(
    context: Context, image: Path, done: BindingReport, request: BindingRequest, directory: Path, file: Path | None
) -> BindingRequest:  # fmt: skip
    """Keep repaired copies of the image's files, and note them in the bindings."""
    from dataclasses import replace

    from stackyard.images.api import bindings_text, repaired_bindings

    bindings = repaired_bindings(image, done.rpaths, directory, request.bindings)
    target = _file(context, file)
    comments = [line[2:] for line in target.read_text(encoding="utf-8").splitlines() if line.startswith("# ")]
    _write_text(target, bindings_text(bindings, comments))
    echo(f"repaired {', '.join(done.rpaths)}: copies in {directory}, bound by {target}", err=True)
    return replace(request, bindings=bindings)


def _ranks(context: Context, image: Path, request: BindingRequest, launcher: str, program: Sequence[str]) -> list[Rank]:
    from stackyard.images.api import run_ranks

    ranks, done = run_ranks(image, request.bindings, request.policy, launcher, program)
    show_text(done.output, err=True)
    return ranks


def _show_checked(done: BindingReport, findings: Sequence[Finding], ranks: Sequence[Rank]) -> None:
    """The findings, what each rank has loaded, and the verdict."""
    for finding in findings:
        show_finding(finding)
    for rank in ranks:
        whose = "the host's" if rank.is_host else "not the host's"
        echo(f"rank {rank.rank} on {rank.node}: {rank.library or 'no MPI'}, {whose}")
    refused = sum(finding.severity == "refused" for finding in findings)
    of_host = sum(loaded.startswith("host:") for loaded in done.loads.values())
    verdict = counted(refused, "problem") if refused else "no problem found"
    echo(f"{done.image}: {verdict}; {of_host} of {len(done.loads)} programs and libraries load the host's MPI")


def _file(context: Context, file: Path | None) -> Path:
    """The bindings in force: the file that is named, or that of site.yaml, or that of this directory."""
    if file is not None:
        return file
    named = context.site().launch.container.bindings
    if not named and not Path(FILE).exists():
        raise InputError("no bindings: site.yaml names none", hint="write a file: stackyard bindings detect")
    return Path(named or FILE)


def _write_text(file: Path, text: str) -> None:
    from stackyard.yard.api import write_text

    try:
        write_text(file, text)
    except OSError as error:
        raise InputError(f"cannot write {file}: {cause(error)}", hint="-o names another file") from error
