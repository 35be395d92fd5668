"""The command line: each verb is imported when it is used, and errors are caught here only."""

from __future__ import annotations

import errno
import importlib
import os
import re
import signal
import sys
import warnings
from contextlib import suppress
from pathlib import Path

import click

from stackyard import __version__
from stackyard.cli import entry
from stackyard.cli.commandline import SuggestingGroup, as_error
from stackyard.core.errors import StackyardError, StopSignal

SECTIONS = {
    "Begin": {
        "init": "look at this machine and its scheduler, and write a commented site.yaml",
        "config": "show which site file, yard, channels and indexes count here, and from where",
        "help": "show the verbs of every day, all verbs, or the help of one",
        "completion": "print the script by which bash, zsh, fish or tcsh completes command lines",
    },
    "Build and publish": {
        "deploy": "lock, build, verify and publish the stacks of FILE...",
        "lock": "solve FILE... and write the lock beside it; export it to other tools",
        "mirror": "download everything the locks of FILE... need into one directory, for offline machines",
        "adopt": "take over an existing conda prefix or virtual environment, where it is",
        "wrap": "run commands from a third-party container image through a module",
        "verify": "run the checks of a revision again, on this machine",
        "push": "send a revision to a registry or a layout, for other yards at the same path",
        "pull": "publish a revision that another yard pushed, without building it",
    },
    "Look and use": {
        "list": "list the published revisions",
        "show": "show a revision's packages, modulefile, lock and report, or how a FILE was parsed",
        "diff": "compare two revisions or locks",
        "why": "show why a package is in a revision",
        "run": "run a command in a revision, without a module system",
        "shell": "start a shell in a revision, where the files of its image are visible",
        "kernel": "make revisions available as Jupyter kernels",
        "licences": "show and accept licences; list the licence of every package",
        "sbom": "print the bill of materials of a revision, as CycloneDX or SPDX",
        "share": "let a group load one of your revisions",
        "catalogue": "write a site, Markdown pages or JSON with everything that is published",
    },
    "Packages of your own on a published revision": {
        "extend": "add your own packages to a published revision, as a small layer",
        "status": "show your extensions, their bases, and what was installed since they were recorded",
        "update": "record what was installed in an extension, or remove it",
        "rebase": "move an extension to the newest revision of its base",
        "export": "write the packages of a stack or an extension for pixi, conda, pip or another yard",
    },
    "Jobs": {
        "launch": "start ranks on the nodes of this allocation, or on this machine",
        "submit": "write and submit the batch script of a job, and follow the job",
        "explain": "show a job as srun, jsrun, mpirun, mpiexec and flux start it, and why each flag is used",
        "lint": "find errors and wasted resources in a batch script",
        "runs": "list, follow, cancel and compare runs",
        "board": "show a run or a directory in TensorBoard and the like, to you alone",
        "profile": "trace a run that is running, without a change to it",
    },
    "Measure": {
        "bench": "measure a program on several sizes or in several variants, several times",
        "tune": "search the best parameters of a program, over as many allocations as it takes",
        "report": "show the results of a study, a search or a profiled run, also as HTML, Markdown, CSV, JSON or SVG",
    },
    "Diagnose": {
        "doctor": "find the first cause of a failure in logs, or what is wrong with this shell, machine and yard",
    },
    "Images and containers": {
        "image": "build, mount, inspect and transfer images of revisions",
        "recipe": "write a Containerfile or an Apptainer definition that builds a revision's image elsewhere",
        "bindings": "find and check the MPI, network and GPU libraries that images use from this host",
    },
    "A yard over the years": {
        "history": "show what was published when, by whom and from which files",
        "rollback": "go back to the previous generation",
        "default": "make a revision the default of its stack",
        "withdraw": "hide a revision from users; its full name still loads it",
        "sign": "sign revisions with an SSH key; who may sign is in site.yaml",
        "retire": "announce an end date: loading warns from then on; hidden and removed later",
        "remove": "remove an unused revision; it can be restored for some days",
        "fsck": "find changed, missing and added files in a yard, and restore them",
        "usage": "show how often revisions are used, by whom and when",
        "gc": "remove unused revisions, failed builds and cache entries",
        "move": "rebuild everything that is published at another path, and publish it there",
        "schema": "print the JSON Schema of stack.yaml or site.yaml, for editors",
    },
}
"""The verbs, with what they do, by what people are about to do."""
PLACES = dict(
    zip(SECTIONS, ("begin", "publish", "look", "extensions", "jobs", "study", "doctor", "images", "yard"), strict=True)
)
"""The directory of each section's verbs, below ``stackyard/cli``."""
VERBS = {name: text for verbs in SECTIONS.values() for name, text in verbs.items()}


_TEMPORARY = re.compile(r"(.*/|)\.([^/]+)\.[0-9a-f-]+\.tmp$")
"""The name from which a file is renamed to its place (`yard.write.atomic`)."""
_UNCHANGED = "published revisions are unchanged"
_AGAIN = f"{_UNCHANGED}; run the same command again to continue"


def _stopped(how: str) -> str:
    """The message for a command that a signal ended, depending on its verb."""
    verb = next((word for word in sys.argv[1:] if word in VERBS), "")
    if verb in ("submit", "runs", "bench", "tune"):
        return f"{how}: jobs that were submitted go on; `stackyard runs` shows them"
    return (
        how if verb in {**SECTIONS["Look and use"], **SECTIONS["Jobs"], **SECTIONS["Diagnose"]} else f"{how}: {_AGAIN}"
    )


class LazyGroup(SuggestingGroup):
    """A group whose commands live in ``cli/<section>/<verb>.py``; help texts come from `VERBS` without an import."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The verbs in their usual order of use."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one verb."""
        place = next((PLACES[title] for title, verbs in SECTIONS.items() if cmd_name in verbs), None)
        if place is None:
            return None
        command: click.Command = importlib.import_module(f"stackyard.cli.{place}.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The lists of verbs, in columns of equal width, without importing them."""
        width = max(map(len, VERBS))
        for title, verbs in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:{width}}", text) for name, text in verbs.items()])


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__, prog_name="stackyard")
@click.option("--yard", type=Path, help="Yard to use (default: $STACKYARD_HOME).")  # click's own type looks at it
@click.option("--site", type=click.Path(path_type=Path), help="Site file (default: $STACKYARD_SITE).")
@click.option("--debug", is_flag=True, help="Print a traceback on errors.")
@click.pass_context
def cli(ctx: click.Context, yard: Path | None, site: Path | None, debug: bool) -> None:
    """One declarative file becomes a software stack that a cluster can use."""
    from stackyard.cli.context import Context  # late: `--version` and `--help` end before

    ctx.obj = Context(yard, site, debug=debug)
    if ctx.invoked_subcommand is None:
        from stackyard.cli.begin.everyday import everyday

        everyday(ctx.obj)


def _stop(number: int, _: object) -> None:
    signal.signal(number, signal.SIG_DFL)  # the second one ends it at once
    raise StopSignal(number)


def main() -> None:
    """The program. Exit status: 0 done, 1 failed, 2 bad input, 3 a check did not pass, 4 a dependency is missing."""
    entry.begin()
    try:
        try:
            _hear()
            _run()
        finally:
            _be_deaf()
    except SystemExit as leaving:
        if isinstance(leaving.code, int):
            _leave(leaving.code)
        raise
    except (KeyboardInterrupt, StopSignal) as stopped:  # before or after the verb: there is nothing to put in order
        _leave(128 + getattr(stopped, "number", signal.SIGINT))


def _hear() -> None:
    """Turn the signals that ask the program to end into exceptions."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_DFL:  # as the package has set it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:  # nohup ignores SIGHUP
            signal.signal(number, _stop)


def _be_deaf() -> None:
    """Make Ctrl-C end the program at once: during Python's own exit it would cause a traceback."""
    if signal.getsignal(signal.SIGINT) == signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _leave(code: int) -> None:
    """Exit at once, after everything is done and printed.

    The interpreter takes a fifth of a short command to take its modules apart. And the solver's threads may still be
    reading a channel that is no longer needed: one that calls back meanwhile would abort the process, and the exit
    status would be lost.
    """
    with suppress(OSError, ValueError):  # the reader of the output has exited
        for stream in filter(None, (sys.stdout, sys.stderr)):  # None where the shell closed it
            stream.flush()
    os._exit(code)


def _colour() -> bool | None:
    """False if colours are unwanted (NO_COLOR) or unsupported; None: depends on whether the stream is a terminal."""
    return False if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" else None


def _run() -> None:
    with click.Context(cli, color=_colour()):  # for the errors below, which come after the verb's own context
        _run_verb()


def _run_verb() -> None:
    if "--debug" not in sys.argv and not sys.warnoptions:  # libraries warn who programs with them
        warnings.simplefilter("ignore")
    try:
        sys.exit(
            cli.main(prog_name="stackyard", standalone_mode=False, color=_colour()) or 0
        )  # click hands an Exit's code back
    except StackyardError as error:
        if "--debug" in sys.argv:
            raise
        from stackyard.cli.output import show_error

        show_error(error)
        sys.exit(error.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        from stackyard.cli.output import show_text

        show_text(error.format_message(), err=True)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        from stackyard.cli.output import show_error

        show_error(as_error(error))
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
    except (KeyboardInterrupt, click.Abort):  # click turns the one into the other
        click.echo(_stopped("interrupted"), err=True)
        sys.exit(130)
    except StopSignal as stopped:
        click.echo(_stopped(str(stopped)), err=True)
        sys.exit(128 + stopped.number)
    except OSError as error:
        if "--debug" in sys.argv:
            raise
        from stackyard.cli.output import show_error

        name = f"{error.filename}: " if error.filename else "cannot read or write: "
        if part := _TEMPORARY.match(str(error.filename)):  # what is renamed to its place at the end
            name = f"cannot write {part[1]}{part[2]}: "
        hint = "name a place where you can write" if part else None
        hint = hint if _has_directory() else "the current directory was removed: change to another (cd)"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            hint = f"free some space and type the same again: {_UNCHANGED}"
        show_error(StackyardError(f"{name}{error.strerror or error}", hint=hint))
        sys.exit(1)


def _has_directory() -> bool:
    try:
        return bool(Path.cwd())
    except OSError:
        return False


if __name__ == "__main__":
    main()
