"""How long the list of the addresses of all ranks may be, which backends pass in a variable."""

from __future__ import annotations

from stackyard.core.errors import InputError

VARIABLE_BYTES = 131_072
"""The longest variable that Linux passes to a program, with its name (MAX_ARG_STRLEN, execve(2): 32 pages of 4 KiB)."""
PEERS_BYTES = VARIABLE_BYTES - 1024
"""The same for the addresses in it."""


def check_size(ranks: int, size: int) -> None:
    """Raise InputError if the addresses of so many ranks, with `size` bytes, are too long for a variable."""
    if size > PEERS_BYTES:
        raise InputError(
            f"the addresses of {ranks} ranks take {-(-size // 1024)} KiB, and Linux passes at most "
            f"{VARIABLE_BYTES // 1024} KiB in one variable (TF_CONFIG)",
            hint="start one rank per node, which uses all of its GPUs (-r 1), or request fewer nodes",
        )
