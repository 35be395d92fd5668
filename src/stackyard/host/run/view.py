"""Read-only views of directories, for programs that should not change anything there.

File modes stop neither root nor an owner who changes them. In a mount namespace even root cannot write by accident.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

from stackyard.core.errors import StackyardError
from stackyard.core.late import dataclass
from stackyard.host.run import script

_SCRIPT = Path(__file__).with_name("readonly.py")


@dataclass(frozen=True)
class View:
    """Read-only directories, and writable ones inside of them. Without any, the plain files.

    Attributes:
        names: second names of directories: an empty directory that shows it, and the directory.
    """

    readonly: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    names: tuple[tuple[Path, Path], ...] = ()

    @property
    def words(self) -> tuple[str, ...]:
        """The view as arguments of `host.run.readonly`; none for the plain files."""
        if not self.readonly:
            return ()
        names = (str(path) for pair in self.names for path in pair)
        return (*map(str, self.readonly), "--", *map(str, self.writable), "--", *names)

    def argv(self, words: Sequence[str]) -> tuple[str, ...]:
        """The command line that runs another one in this view."""
        if not self.readonly:
            return tuple(words)
        return (*script.words(_SCRIPT), *self.words, "--", *words)


PLAIN = View()


def view_of(
    readonly: Iterable[Path], writable: Iterable[Path] = (), names: Iterable[tuple[Path, Path]] = ()
) -> tuple[View, str]:
    """The view, and why it is impossible here (then it is the plain one). Missing directories are left out.

    Args:
        writable: directories that stay writable inside of `readonly`.
        names: as in `View`.
    """
    tops = tuple(path for path in dict.fromkeys(readonly) if path.is_dir())
    inside = tuple(path for path in dict.fromkeys(writable) if path.is_dir() and any(_is_in(path, top) for top in tops))
    view = View(tops, inside, tuple(names))
    reason = _refused(view) if tops else ""
    return (PLAIN, reason) if reason else (view, "")


@lru_cache(maxsize=256)
def _refused(view: View) -> str:
    """Why this view is impossible, found by trying it; empty if it works."""
    from stackyard.host.run import command  # which runs programs in views

    try:
        argv = [*script.words(_SCRIPT), *view.words]
        result = command.run(argv, cwd=Path("/"), timeout_s=30, check=False)
    except StackyardError as error:
        return error.message
    if result.returncode == 0:
        return ""
    return (result.stderr.strip().splitlines() or ["the directory stays writable"])[-1]


def _is_in(path: Path, top: Path) -> bool:
    return path.resolve().is_relative_to(top.resolve())
