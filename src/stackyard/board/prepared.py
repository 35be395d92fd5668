"""`Board`: a tool, the files that it shows, and where it runs; and the line to type at home."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from stackyard.board.surroundings import Surroundings, surroundings
from stackyard.board.tools import Tool
from stackyard.core.errors import InputError
from stackyard.core.late import dataclass
from stackyard.host.run.identity import hostname, whoami
from stackyard.launch.api.jobs import Workspace, submit_host
from stackyard.launch.api.runs import RunPaths, find_run, read_run, read_status
from stackyard.study.metrics.events import event_directories
from stackyard.study.tune.export import optuna_study
from stackyard.study.tune.store import is_search
from stackyard.yard.write.atomic import write_json

MOST = 1000
"""Directories that are shown of a run: more than it has ranks with one each."""


@dataclass(frozen=True)
class Board:
    """A tool and what it shows.

    Attributes:
        places: the directories, or the file.
        is_search: it is a directory of `stackyard tune`, whose trials are shown from memory.
    """

    workspace: Workspace
    tool: Tool
    name: str
    places: tuple[Path, ...]
    where: Surroundings
    is_search: bool = False

    def place(self, links: Path) -> Path:
        """The one path to show; of several directories a new one, `links`, with a link to each at its place in it."""
        if self.is_search:
            file = links.with_suffix(".search.json")
            write_json(file, optuna_study(self.places[0]), mode=0o600)
            return file
        if len(self.places) == 1:
            return self.places[0]
        for place in self.places:
            link = links / place.relative_to(os.path.commonpath(self.places))
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(place)
        return links

    def line_to_type(self, socket: Path, port: int) -> str:
        """The ssh command that forwards a port of the computer where it is typed to a socket of this node.

        It goes through the site's login node, else the host that this job was submitted from; if that is this node,
        directly to it, by this name.
        """
        user, here = whoami(), hostname()
        login = self.workspace.site.board.login or submit_host(self.workspace) or here
        is_here = login.partition(".")[0] == here.partition(".")[0]
        to = [f"{user}@{login}"] if is_here else ["-J", f"{user}@{login}", f"{user}@{here}"]
        return shlex.join(["ssh", "-N", "-L", f"{port}:{socket}", *to])


def prepared(workspace: Workspace, name: str, tool: Tool, stack: str) -> Board:
    """A tool that shows a directory, a file, or a run.

    Args:
        name: a path, or the name of a run (`find_run`).
        stack: a revision; empty: as in `surroundings`.

    Raises:
        InputError: no such run, path or revision, or the run has none of the tool's files.
        MissingError: the tool is not there.
    """
    path = Path(name).absolute()
    if is_search(path):
        if tool.name != "optuna-dashboard":
            raise InputError(f"{name} is a search, which {tool.name} cannot show",
                             hint="leave --tool out: optuna-dashboard shows it")  # fmt: skip
        return Board(workspace, tool, name, (path,), surroundings(tool, workspace, stack, ""), is_search=True)
    if path.exists() and not (path / "record.json").exists():
        return Board(workspace, tool, name, (_below(path, tool),), surroundings(tool, workspace, stack, ""))
    run = find_run(name, workspace.runs)
    module = read_run(run).stack.get("module", "")
    return Board(workspace, tool, run.name, _of_run(run, tool), surroundings(tool, workspace, stack, module))


def _below(directory: Path, tool: Tool) -> Path:
    return directory / tool.below if (directory / tool.below).is_dir() else directory


def _of_run(run: RunPaths, tool: Tool) -> tuple[Path, ...]:
    if not tool.part:
        return (_below(run.root, tool),)
    found = event_directories(run, read_status(run), tool.part, MOST)
    if not found:
        raise InputError(f"{run.name} has written no files for {tool.name}, neither into its directory nor beside it",
                         hint="wait until it has, or name another place: stackyard board DIR")  # fmt: skip
    return tuple(one for one in found if not any(one != other and one.is_relative_to(other) for other in found))
