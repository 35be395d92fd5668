"""An export: every file that a variant needs, as a list that the site's download proxy reads."""

from __future__ import annotations

from stackyard.lock.lockfile.model import LockedVariant

STACKYARD_PROTOCOL = 1


def urls(variant: LockedVariant) -> str:
    """One line for each package: its sha256 and its URL."""
    lines = sorted(f"{each.sha256}  {each.url}" for each in (*variant.conda, *variant.pip) if each.url)
    return "".join(f"{line}\n" for line in lines)
