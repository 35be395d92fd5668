"""`Workspace`: where jobs are planned and recorded; what callers of `launch.api` pass, as plain values."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stackyard.yard.layout import Yard

if TYPE_CHECKING:
    from stackyard.spec.sitemodels import Site


@dataclass(frozen=True)
class Workspace:
    """The site, the yard, and where and how you work with them.

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

    def stackyard(self, *words: str) -> tuple[str, ...]:
        """The command that starts this program with `words` on a node: the same Python, yard and site."""
        site = ("--site", str(self.site_file)) if self.site_file else ()
        return (sys.executable, "-m", "stackyard.cli.main", "--yard", str(self.yard.root), *site, *words)
