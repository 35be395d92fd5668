"""The command line: each verb is imported when it is used, and errors are caught here only."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import warnings
from contextlib import suppress
from pathlib import Path

import click

from stackyard import __version__
from stackyard.cli.context import Context
from stackyard.errors import StackyardError

VERBS = {
    "deploy": "lock, build, verify and publish the stacks of FILE...",
    "lock": "solve FILE... and write the lock beside it; export it to other tools",
    "list": "published revisions",
    "show": "one revision: packages, modulefile, lock, report; or how a FILE was parsed",
    "diff": "what changed between two revisions or locks",
    "why": "why a package is in a revision",
    "run": "run a command in a revision, without a module system",
    "shell": "a shell in a revision, which sees the files of its image",
    "image": "revisions whose files are in one image: how they are mounted, what they hold",
    "recipe": "a Containerfile or an Apptainer definition by which others build the image of a revision",
    "verify": "run the checks of a revision again, on this machine",
    "bindings": "what images get from this host: its MPI, network and GPU libraries, found and checked",
    "rollback": "go back to the previous generation",
    "history": "what was published when, by whom and from which files",
    "launch": "start ranks on the nodes of this allocation, or on this machine",
    "submit": "write and submit the batch script of a job, and follow the job",
    "explain": "one job as srun, jsrun, mpirun, mpiexec, flux: every flag and why it is used",
    "lint": "find errors and wasted resources in a batch script",
    "runs": "list, follow, cancel and compare runs",
    "schema": "the JSON Schema of stack.yaml or site.yaml, for editors",
}


_UNCHANGED = "published revisions are unchanged; run the same command again to continue"


class LazyGroup(click.Group):
    """A group whose commands live in ``stackyard.cli.verbs.<verb>``; help texts come from `VERBS` without an import."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The verbs in the order in which you need them."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one verb."""
        if cmd_name not in VERBS:
            return None
        command: click.Command = importlib.import_module(f"stackyard.cli.verbs.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of verbs; imports none of them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Like click's, with a suggestion for a misspelt verb."""
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], VERBS, n=1)
            hint = f"Did you mean '{near[0]}'?" if near else f"Commands: {', '.join(VERBS)}."
            ctx.fail(f"No such command '{args[0]}'. {hint}")
        return super().resolve_command(ctx, args)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="stackyard")
@click.option("--yard", type=click.Path(path_type=Path), help="Yard to use (default: $STACKYARD_HOME).")
@click.option("--site", type=click.Path(path_type=Path), help="Site file (default: $STACKYARD_SITE).")
@click.option("--debug", is_flag=True, help="Print a traceback on errors.")
@click.pass_context
def cli(ctx: click.Context, yard: Path | None, site: Path | None, debug: bool) -> None:
    """One declarative file becomes a software stack that a cluster can use."""
    ctx.obj = Context(yard, site, debug)


class _Stopped(BaseException):
    """A signal that asks the program to end; like an interrupt, it leaves time to put things in order."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _stop(number: int, _: object) -> None:
    signal.signal(number, signal.SIG_DFL)  # the second one ends it at once
    raise _Stopped(number)


def main() -> None:
    """The program. Exit status: 0 done, 1 failed, 2 bad input, 3 a check did not pass, 4 a dependency is missing."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:  # nohup ignores SIGHUP
            signal.signal(number, _stop)
    try:
        _run()
    except SystemExit as leaving:
        if "rattler" in sys.modules and isinstance(leaving.code, int):
            _leave(leaving.code)
        raise


def _leave(code: int) -> None:
    """Exit at once, after everything is done and printed.

    The solver's threads may still be reading a channel that is no longer needed. One that calls back while the
    interpreter shuts down would abort the process, and the exit status would be lost.
    """
    with suppress(OSError, ValueError):  # the reader of the output has exited
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _run() -> None:
    if "--debug" not in sys.argv and not sys.warnoptions:  # libraries warn who programs with them
        warnings.simplefilter("ignore")
    try:
        sys.exit(cli.main(standalone_mode=False) or 0)  # click hands an Exit's code back
    except StackyardError as error:
        if "--debug" in sys.argv:
            raise
        from stackyard.cli.output import show_error

        show_error(error)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
    except (KeyboardInterrupt, click.Abort):  # click turns the one into the other
        click.echo(f"interrupted: {_UNCHANGED}", err=True)
        sys.exit(130)
    except _Stopped as stopped:
        name = signal.Signals(stopped.number).name
        click.echo(f"ended by {name}: {_UNCHANGED}", err=True)
        sys.exit(128 + stopped.number)
    except OSError as error:
        if "--debug" in sys.argv:
            raise
        from stackyard.cli.output import show_error

        name = f"{error.filename}: " if error.filename else "cannot read or write: "
        show_error(StackyardError(f"{name}{error.strerror or error}"))
        sys.exit(1)


if __name__ == "__main__":
    main()
