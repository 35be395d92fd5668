"""Tools that show files as web pages: a row for each; a plug-in adds rows, and any command line can be one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from pathlib import Path

from stackyard.core import plugins
from stackyard.core.errors import InputError
from stackyard.core.late import dataclass

PYTHON = "python"
"""The first word of a command that the Python of the stack runs."""
_SOCKET_SERVER = (PYTHON, str(Path(__file__).with_name("socket_server.py")))


@dataclass(frozen=True)
class Tool:
    """A row: the command that shows a directory, and where it listens.

    In its words ``{directory}`` is what it shows, and one of these tells where it listens: ``{socket}``, the path of a
    UNIX socket that it makes; or ``{port}``, a port of 127.0.0.1, for which it runs in a network namespace of its own.

    Attributes:
        module: the Python module that it needs; empty: its first word has to be on PATH.
        port: the port for your browser, unless you ask for another one; the tool's own is the same.
        below: a directory that is shown in place of the one that has it.
        part: a part of the names of its files: of a run it shows the directories that have such files.
        variables: of its environment, unless they are set.
    """

    name: str
    words: tuple[str, ...]
    module: str = ""
    port: int = 8000
    below: str = ""
    part: str = ""
    variables: dict[str, str] = field(default_factory=dict)

    def has(self, hole: str) -> bool:
        """Whether ``{hole}`` is in its words."""
        return any(f"{{{hole}}}" in word for word in self.words)

    def command(self, directory: Path, socket: Path, port: int) -> list[str]:
        """Its words, filled in."""
        first = [word.replace("{socket}", str(socket)).replace("{port}", str(port)) for word in self.words]
        return [word.replace("{directory}", str(directory)) for word in first]  # last: its name may have braces


ROWS = (
    # tensorboard.program.TensorBoard, 2.4 to 2.21: event files
    Tool("tensorboard", (*_SOCKET_SERVER, "tensorboard", "{socket}", "{directory}"), "tensorboard", 6006,
         part=".tfevents."),
    # optuna_dashboard.wsgi, 0.21: a file of Optuna, SQLite or a journal
    Tool("optuna-dashboard", (*_SOCKET_SERVER, "optuna", "{socket}", "{directory}"), "optuna_dashboard", 8080),
    # mlflow ui --help, 3.17: a file store, which newer versions use only where it is allowed
    Tool("mlflow", (PYTHON, "-m", "mlflow", "ui", "--backend-store-uri", "{directory}", "--host", "127.0.0.1", "--port",
         "{port}", "--workers", "1"), "mlflow", 5000, below="mlruns", variables={"MLFLOW_ALLOW_FILE_STORE": "true"}),
    # aim up --help, 3.29: a directory with an .aim repository
    Tool("aim", ("aim", "up", "--yes", "--repo", "{directory}", "--uds", "{socket}"), port=43800),
)  # fmt: skip
TABLE = {row.name: row for row in ROWS}
GROUP = "stackyard.boards"
"""The entry points of plug-ins; each is a `Tool`."""


def find(name: str) -> Tool:
    """The tool of this name. Raises InputError for an unknown one; the hint lists the known ones."""
    return plugins.find(GROUP, name, TABLE, Tool, "tool", "known: {}; any other: stackyard board DIR -- COMMAND")


def of_command(words: Sequence[str]) -> Tool:
    """Any command line as a tool.

    Raises:
        InputError: it does not tell where it listens.
    """
    tool = Tool(Path(words[0]).name, tuple(words))
    if not (tool.has("port") or tool.has("socket")):
        raise InputError(f"cannot tell where {tool.name} listens: neither {{port}} nor {{socket}} is among its words",
                         hint="write {port} where it takes its port, e.g. python -m http.server {port}")  # fmt: skip
    return tool
