"""The systems that start the containers of a scheduler's jobs: a table for each, and what a script says to them."""

from stackyard.launch.request.options import names
from stackyard.lint.systems.base import System
from stackyard.lint.systems.edf import EDF
from stackyard.lint.systems.podman import PODMAN
from stackyard.lint.systems.pyxis import PYXIS
from stackyard.lint.systems.sarus import SARUS
from stackyard.lint.systems.shifter import SHIFTER
from stackyard.lint.systems.uenv import UENV

__all__ = ["EDF", "FLAGS", "PODMAN", "PYXIS", "SARUS", "SHIFTER", "TABLE", "UENV", "VALUED", "WORDS", "of_program"]

TABLE = (EDF, UENV, PYXIS, SHIFTER, PODMAN, SARUS)
"""All of them; of those that srun starts, the first whose own options are there is meant."""
OF_SRUN = tuple(system for system in TABLE if not system.programs)
VALUED = {name: name for system in OF_SRUN for name in system.table.valued} | names("image volume module")
FLAGS = {name: name for system in OF_SRUN for name in system.table.flags}
WORDS = frozenset((*VALUED, *FLAGS))
"""Their options of srun and sbatch; an image, volumes and modules are those of Shifter's plug-in."""


def of_program(word: str) -> System | None:
    """The system whose program a word names; None for any other program."""
    name = word.rsplit("/", 1)[-1]
    return next((system for system in TABLE if name in system.programs), None)
