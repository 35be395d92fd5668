"""conda itself, to be run by tests: its source, and what it imports, in one directory.

conda is not on PyPI, but conda-lock ships its source, with other names for its imports; these are changed back. Another
one can be tried: ``STACKYARD_CONDA_SOURCE`` is a directory with the package ``conda``, such as a checkout of
github.com/conda/conda.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import zipfile
from pathlib import Path

from support.accounts import Account, Accounts
from support.cli import Done
from support.testbed import kept, wheels

HERE = Path(__file__).parent
LIST = HERE / "wheels-conda.txt"
PLACE = "conda_lock._vendor."
"""What conda-lock writes before the names of conda's modules."""


def conda_site() -> Path:
    """A directory for PYTHONPATH from which ``python -m conda`` runs.

    Raises:
        MissingError: a wheel could not be fetched.
    """
    return kept("conda", [LIST, Path(__file__)], _make)


def _make(directory: Path) -> None:
    for wheel in sorted(wheels(LIST).glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            if not wheel.name.startswith("conda_lock-"):
                archive.extractall(directory)
                continue
            with tempfile.TemporaryDirectory(dir=directory) as work:
                archive.extractall(work)
                shutil.move(Path(work, *PLACE.strip(".").split("."), "conda"), directory / "conda")
    for module in (directory / "conda").rglob("*.py"):
        module.write_text(module.read_text(encoding="utf-8").replace(PLACE, ""), encoding="utf-8")


class Conda:
    """conda as one account runs it, with the variables of a loaded module."""

    def __init__(self, accounts: Accounts, account: Account, **variables: str) -> None:
        source = os.environ.get("STACKYARD_CONDA_SOURCE")
        places = [*([source] if source else []), str(accounts.readable(conda_site()))]
        self.account = account
        self.variables = {
            "PYTHONPATH": os.pathsep.join(places),
            "PYTHONDONTWRITEBYTECODE": "1",
            "CONDA_SOLVER": "classic",
            "CONDA_SAT_SOLVER": "pysat",
            "CONDA_ADD_PIP_AS_PYTHON_DEPENDENCY": "false",  # the tests' channels have no pip
            **variables,
        }

    def run(self, *words: str | Path, expect: int | None = 0, **variables: str) -> Done:
        """Run ``conda WORDS...``."""
        argv = [self.account.bin / "python", "-m", "conda", *words]
        return self.account.run(*argv, expect=expect, **{**self.variables, **variables})
