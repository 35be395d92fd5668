"""The global options of a command line: the yard and the site of a command (`inputs.sites.settings`)."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from stackyard.cli.output import show_notice
from stackyard.core.late import dataclass
from stackyard.inputs.api import Settings, with_home

if TYPE_CHECKING:
    from stackyard.launch.api.jobs import Workspace


@dataclass(frozen=True)
class Context(Settings):
    """The global options of a command line."""

    debug: bool = False

    @property
    def command(self) -> tuple[str, ...]:
        """The words of this command line for records and manifests: without secrets in URLs."""
        from stackyard.core.secrets import redacted

        return ("stackyard", *(redacted(word) for word in sys.argv[1:]))

    @property
    def program(self) -> str:
        """The command for this program with the same yard and site, from any directory; for messages."""
        words = ["stackyard"]
        if self.yard_option is not None:
            words += ["--yard", str(self.yard_option.absolute())]
        if self.site_option is not None:
            words += ["--site", str(with_home(str(self.site_option)).absolute())]
        return shlex.join(words)

    def job_workspace(self) -> Workspace:
        """The workspace for jobs: this site and yard, this shell, this command line."""
        from stackyard.launch.api.jobs import Workspace

        site, file = self.site(), self.site_file()
        return Workspace(
            site, self.yard(), file, Path.cwd() / site.launch.runs, os.environ,
            tuple(sys.argv),
        )  # fmt: skip

    def notice(self, text: str) -> None:
        """Print it on standard error."""
        show_notice(text)
