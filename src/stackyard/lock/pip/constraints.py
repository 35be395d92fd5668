"""Version constraints of pip packages, from the stack's file and from pip's settings."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from stackyard.core.errors import InputError
from stackyard.host.tools.pipconf import PipSettings
from stackyard.inputs.models import PipRequirement
from stackyard.inputs.pip.requirements import RequirementsReader
from stackyard.inputs.reading.paths import with_home
from stackyard.inputs.reading.yamlfile import raise_problems


def constraint_lines(own: Iterable[PipRequirement], settings: PipSettings) -> list[str]:
    """The constraints of the file and of pip's configuration, as lines for uv.

    Raises:
        InputError: a constraints file of pip's configuration cannot be read, or has a line that is invalid in one.
    """
    reader = RequirementsReader(Path.cwd())
    for place in settings.constraints:
        try:
            reader.read_file(with_home(place), constraint=True)
        except InputError as error:
            if error.where is None:
                why = f"the constraints of pip's configuration: {error.message}"
                hint = "correct `constraint` in pip.conf or PIP_CONSTRAINT"
                raise InputError(why, hint=hint) from error
            raise
    raise_problems(reader.problems)
    return [r.line for r in (*own, *reader.constraints)]
