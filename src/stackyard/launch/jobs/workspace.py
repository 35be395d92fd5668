"""`Workspace`: where jobs are planned and recorded; what callers of `launch.api` pass, as plain values."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stackyard.host.secrets import is_secret
from stackyard.yard.layout import Yard

if TYPE_CHECKING:
    from stackyard.spec.sitemodels import Site


@dataclass(frozen=True)
class Workspace:
    """The site, the yard, and where and how you work with them.

    Values of ``--env`` that may be secret are taken out of `argv`: what is left names the variable only.

    Attributes:
        site_file: the file that `site` was read from, absolute; None: the built-in defaults.
        runs: the directory in which run directories are created and found.
        environ: the environment variables of your shell.
        argv: the command line that you typed, for records and as a comment in batch scripts.
    """

    site: Site
    yard: Yard
    site_file: Path | None
    runs: Path
    environ: Mapping[str, str]
    argv: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "argv", tuple(_without_values(self.argv)))

    def stackyard(self, *words: str) -> tuple[str, ...]:
        """The command that starts this program with `words` on a node: the same Python, yard and site."""
        site = ("--site", str(self.site_file)) if self.site_file else ()
        isolated = ("-I",) if sys.flags.isolated else ()
        return (sys.executable, *isolated, "-m", "stackyard.cli.main", "--yard", str(self.yard.root), *site, *words)


def _without_values(words: Iterable[str]) -> Iterator[str]:
    """A command line in which ``--env NAME=VALUE`` is ``--env NAME`` where the value may be secret."""
    for word in words:
        option, name, value = re.fullmatch(r"(--env=)?(?:(\w+)=)?(.*)", word, re.DOTALL).groups()  # type: ignore[union-attr]
        secret = name and value and (option or not word.startswith("-")) and is_secret(name, value)
        yield f"{option or ''}{name}" if secret else word
