"""``stackyard board``: a run or a directory in a tool with web pages, which no other account of the node can open."""

from __future__ import annotations

from pathlib import Path

import click

from stackyard.cli.agreeing import agreed
from stackyard.cli.context import Context
from stackyard.cli.help import verb
from stackyard.cli.output import echo, show_notice
from stackyard.core.errors import InputError
from stackyard.yard.api import count_use, hold_revision, require_files


@verb(
    ("the last run of this directory, in TensorBoard", "stackyard board last"),
    ("the trials of a search, in Optuna's dashboard", "stackyard board studies/train"),
    ("MLflow's runs, by the MLflow of a stack", "stackyard board . --tool mlflow --stack pytorch/2.13"),
    ("any tool that listens on a port", "stackyard board data -- python -m http.server {port} -d {directory}"),
)  # fmt: skip
@click.argument("what", metavar="RUN|DIR|FILE")
@click.argument("argv", nargs=-1, metavar="[-- COMMAND...]", type=click.UNPROCESSED)
@click.option("--tool", metavar="NAME", help="tensorboard (default), optuna-dashboard, mlflow, aim, or of a plug-in.")
@click.option("--stack", metavar="REV", default="", help="That has the tool. Default: the run's own, else this shell.")
@click.option("--port", type=click.IntRange(1024, 65535), help="On your own computer. Default: the tool's usual one.")
def command(context: Context, /, what: str, argv: tuple[str, ...], tool: str, stack: str, port: int) -> None:
    """Show a run, a directory or a file in a tool with web pages, to you alone.

    The tool answers on a UNIX socket in a directory of yours, and the ssh command to type on your own computer is
    printed. A tool that can only listen on a port gets a network of its own. It ends with Ctrl-C, with the job that it
    runs in, and with this terminal.
    """
    from stackyard.board.api import find_tool, prepared_board, serve_board, tool_of_command
    from stackyard.study.api import is_search

    if argv and tool:
        raise InputError("--tool and a command exclude each other", hint="leave out one of them")
    usual = "optuna-dashboard" if is_search(Path(what)) else "tensorboard"
    row = tool_of_command(argv) if argv else find_tool(tool or usual)
    board = prepared_board(context.job_workspace(), what, row, stack)
    if record := board.where.record:
        board.where.environ.update(agreed(context, record))
        hold_revision(record.path, board.workspace.yard, "board")
        require_files(record.path)
        count_use(record.path, "run")
    at_home = port or row.port

    def ready(socket: Path) -> None:
        echo(f"{row.name} shows {board.name}; on your own computer, type")
        echo(f"  {board.line_to_type(socket, at_home)}")
        echo(f"and open http://localhost:{at_home}/ there. Ctrl-C here ends it.")

    show_notice(f"starting {row.name} of {board.where}")
    serve_board(board, at_home, ready)
