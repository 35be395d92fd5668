"""The files of a search.

studies/train/
  space.yaml           what was asked
  search.json          the seed, where it runs, by which command: written once, before anything runs
  journal.jsonl        all that happened (`journal`)
  trials/0007/         a trial's directory: log, checkpoint/
  worker.py, python/   what runs on the nodes, and the helper that a trial may import
  ray/                 what Ray keeps, with --engine ray
  allocations/1/       a batch job of the search: `run` names its run directory
  runs/                the run directories of workers and jobs
"""

from __future__ import annotations

import secrets
from dataclasses import asdict, field
from pathlib import Path

from stackyard.core.below import Below
from stackyard.core.errors import InputError
from stackyard.core.late import dataclass
from stackyard.host.files import at
from stackyard.host.run import clock
from stackyard.host.run.identity import hostname, whoami
from stackyard.launch.api.jobs import RunPaths, Workspace
from stackyard.study.directory import free_root, new_directory, require_own
from stackyard.study.tune.request import SearchRequest, load_space, space_text
from stackyard.yard import formats, members
from stackyard.yard.write import atomic

FORMAT = 1


@dataclass(frozen=True)
class SearchPaths:
    """The directory of a search."""

    root: Path

    request = Below("space.yaml")
    about = Below("search.json")
    journal = Below("journal.jsonl")
    trials = Below("trials")
    allocations = Below("allocations")
    runs = Below("runs")
    worker = Below("worker.py")
    helper = Below("python")
    ray = Below("ray")
    writer = Below("lease/writer")
    """Held by the one process that appends to the journal."""
    submitter = Below("lease/submitter")
    """Held by a process while it submits jobs."""

    def trial(self, number: int) -> Path:
        """The directory of a trial."""
        return self.trials / f"{number:04d}"

    def numbers(self) -> list[int]:
        """The allocations so far."""
        return sorted(int(path.name) for path in self.allocations.glob("*") if path.name.isdecimal())

    def run_of(self, allocation: int) -> RunPaths:
        """The run directory of an allocation.

        Raises:
            InputError: it has none.
        """
        try:
            name = at.read_regular(self.allocations / str(allocation) / "run").decode().strip()
            return RunPaths(self.root.joinpath(*at.parts(name)))
        except (OSError, ValueError) as error:
            raise InputError(f"{self.root} has no allocation {allocation}") from error


@dataclass(frozen=True)
class SearchAbout:
    """The state of a search before its first trial.

    Attributes:
        how: ``jobs``: as batch jobs; ``here``: on this machine, or in this allocation.
    """

    seed: int
    how: str
    created: str
    command: tuple[str, ...]
    user: str
    host: str
    versions: dict[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class StoredSearch:
    """A search on disk, with the site and the shell that its trials start from."""

    paths: SearchPaths
    request: SearchRequest
    about: SearchAbout
    workspace: Workspace


_ABOUT = formats.Kind(FORMAT, lambda values: members.make(SearchAbout, values), error=InputError)


def is_search(root: Path) -> bool:
    """Whether a directory is a search."""
    return SearchPaths(root).about.exists()


def default_root(request: SearchRequest) -> Path:
    """``studies/NAME``, with a number where that exists."""
    return free_root(request.name, request.job.program, "search")


def create_search(
    root: Path, request: SearchRequest, workspace: Workspace, how: str, command: tuple[str, ...]
) -> StoredSearch:
    """Write the directory of a search: as a whole, or not at all.

    Raises:
        InputError: it is not empty.
        StackyardError: it cannot be written.
    """
    from stackyard import __version__

    paths, seed = SearchPaths(root.absolute()), request.seed or 1 + secrets.randbelow((1 << 32) - 1)
    about = SearchAbout(seed, how, clock.stamp(), command, whoami(), hostname(),
                        {"stackyard": __version__}, tuple(request.remarks))  # fmt: skip
    with new_directory(paths.root, f"stackyard tune --continue {paths.root}; or --directory ANOTHER") as place:
        draft = SearchPaths(place)
        for directory in (draft.trials, draft.allocations, draft.runs):
            directory.mkdir(parents=True)
        atomic.write_text(draft.request, space_text(request))
        atomic.write_json(draft.about, {"format": FORMAT, **asdict(about)})
    return StoredSearch(paths, request, about, workspace)


def open_search(root: Path, workspace: Workspace) -> StoredSearch:
    """The search in a directory, to carry it out.

    Raises:
        InputError: it is not a search, one of its files is damaged, or it belongs to another account, whose program
            would run under yours.
    """
    paths = SearchPaths(root.absolute())
    about = read_about(paths)
    hint = "`stackyard report` shows it; to repeat it, run its space.yaml: `stackyard tune space.yaml`"
    require_own(root, paths.about, hint)
    return StoredSearch(paths, load_space(paths.request), about, workspace)


def read_about(paths: SearchPaths) -> SearchAbout:
    """The state before the first trial.

    Raises:
        InputError: the directory is not a search, or the file is damaged.
    """
    if not paths.about.exists():
        raise InputError(f"{paths.root} is not a search: it has no search.json",
                         hint="name the directory that `stackyard tune` printed")  # fmt: skip
    return formats.load(paths.about, _ABOUT)
