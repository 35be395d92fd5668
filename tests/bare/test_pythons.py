"""Each supported minor version of Python, in the oldest release that a long-lived distribution has.

3.11.2, of Debian 12, is in ``test_bare_machine``. Older releases of each (3.10.0, 3.11.0, 3.12.0 ...) are in none.
"""

from __future__ import annotations

import pytest
from pythons import check_python

from stackyard.core.errors import MissingError
from support import systems

pytestmark = [pytest.mark.bare, pytest.mark.real]

PACKAGES = ("make", "python3", "python3-venv")
WHERE = {
    "3.10.4": (systems.ubuntu, "jammy"),
    "3.12.3": (systems.ubuntu, "noble"),
    "3.13.5": (systems.debian, "trixie"),
    "3.14.4": (systems.ubuntu, "resolute"),
}


@pytest.mark.parametrize("version", WHERE)
def test_stackyard_on_python(version: str) -> None:
    make, suite = WHERE[version]
    try:
        with make(suite, *PACKAGES) as system:
            system.succeeds("make install")
            assert check_python(system) == version
    except MissingError as error:
        pytest.skip(f"{error}; {(error.detail or '')[-300:]}")
