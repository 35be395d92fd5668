"""The table of checks: those that `verify.verify` runs on every revision, in this order. A new check is a new row.

Loading the module and querying its Python are not rows: they create the environment for the rows.
"""

from __future__ import annotations

from stackyard.verify.checks.adopted import ADOPTED
from stackyard.verify.checks.base import Check
from stackyard.verify.checks.collided import COLLISIONS
from stackyard.verify.checks.consistency import CONSISTENCY
from stackyard.verify.checks.content import FILES, UNCHANGED
from stackyard.verify.checks.images.launcher import LAUNCHER
from stackyard.verify.checks.images.wrapped import WRAPPED
from stackyard.verify.checks.imports import IMPORTS_AND_COMMANDS
from stackyard.verify.checks.libraries import LIBRARIES
from stackyard.verify.checks.own import OWN
from stackyard.verify.checks.signed import SIGNATURES

TABLE: tuple[Check, ...] = (
    FILES,
    LAUNCHER,
    COLLISIONS,
    SIGNATURES,
    WRAPPED,
    IMPORTS_AND_COMMANDS,  # the longest first: the others run beside it
    LIBRARIES,
    CONSISTENCY,
    OWN,
    ADOPTED,
    UNCHANGED,
)
