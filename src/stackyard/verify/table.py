"""The table of checks: what `verify.verify` runs of every revision, in this order. One more check is one more row.

Loading the module and asking its Python are no rows: they make the environment that the rows are carried out in.
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
