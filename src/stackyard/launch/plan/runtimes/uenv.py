"""CSCS's uenv: ``srun --uenv=LABEL|FILE[:MOUNT] --view=NAME``, a SquashFS that is mounted in the step.

uenv's documentation, version 8 and newer. The host's root stays, so the ranks' script, the agents and the program run
as they do without it, and see what is mounted.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from stackyard.core.errors import InputError
from stackyard.launch.plan.model import Reason, Wrapper
from stackyard.launch.plan.runtimes.base import Kind, Runtime, RuntimeInput
from stackyard.launch.plan.runtimes.pyxis import require_option


class Uenv(Runtime):
    """A uenv: a label of the site's repository (``prgenv-gnu/24.11:v1``), or a SquashFS file."""

    name = "uenv"
    program = "srun"
    kind: Kind = "words"
    apart = False
    pulls = labels = True

    def reads(self, image: str) -> bool:
        """Whether it is not a SIF file."""
        return not image.endswith(".sif")

    def wires(self, mpi: bool) -> tuple[str, ...]:
        """None: the root is the host's."""
        return ()

    def require(self, environ: Mapping[str, str] | None) -> None:
        """Raise MissingError where srun is on PATH and has no option --uenv."""
        require_option(self.name, "uenv", environ)

    def check(self, inside: RuntimeInput) -> None:
        """Raise InputError for a directory, and for settings that need a root of its own."""
        if Path(inside.image).is_dir():
            raise InputError(f"{inside.image} is a directory, and uenv mounts SquashFS files", hint="use mksquashfs")
        if inside.policy.libraries or inside.policy.binds:
            raise InputError(
                "launch.container has binds or libraries, and a uenv has the root of the host",
                hint="leave them out of site.yaml for uenv: all files of the host are there",
            )

    def wrapper(self, inside: RuntimeInput) -> Wrapper:
        """The words of srun; views come as options of the site or of the launch (``--launcher-arg --view=default``)."""
        words = (
            Reason((f"--uenv={inside.image}",), "mounted in the step of the ranks; the root stays the host's"),
            *(Reason((option,), "an option of the site or of the job") for option in inside.policy.options),
        )
        return Wrapper((), variables=inside.variables, launcher=words)
