"""pip's hash-checking mode: if any requirement has a hash, all packages need one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from stackyard.core.errors import InputError, Where
from stackyard.core.names import canonical, pip_name
from stackyard.core.quoting import quoted
from stackyard.inputs.models import PipRequirement
from stackyard.inputs.pip.requirement import HEX_LENGTHS
from stackyard.lock.lockfile.model import PipPackage
from stackyard.lock.pip.pylock import RequiredHashes


def wanted_hashes(requirements: Iterable[PipRequirement]) -> dict[str, RequiredHashes]:
    """The hashes that requirements carry, by package.

    Raises:
        InputError: a hash that is not ``sha256:``, ``sha384:`` or ``sha512:`` and that many hexadecimal digits.
    """
    result: dict[str, RequiredHashes] = {}
    for requirement in requirements:
        for text in requirement.hashes:
            algorithm, _, value = text.partition(":")
            if not re.fullmatch(r"[0-9a-fA-F]+", value) or len(value) != HEX_LENGTHS.get(algorithm):
                raise InputError(
                    f"{quoted(text)} is not a hash that pip accepts",
                    where=requirement.place,
                    hint="write --hash=sha256: and 64 hexadecimal digits (or sha384, sha512)",
                )
        name = canonical(requirement.name) or pip_name(requirement.line)
        if requirement.hashes and name:
            result[name] = RequiredHashes(requirement.hashes, requirement.place)
    return result


def require_hashes(packages: Sequence[PipPackage], hashes: Mapping[str, RequiredHashes], where: Where | None) -> None:
    """Apply pip's hash-checking mode: if any requirement has a hash, every package needs one.

    Raises:
        InputError: the hash of a package is missing; the hint has the lines to add.
    """
    missing = [p for p in packages if p.name not in hashes and "sha256=" not in p.url]
    if missing:
        lines = ", ".join(f"{p.name}=={p.version}" for p in missing)
        raise InputError(
            f"with --hash on one requirement pip requires it on all; missing for: {lines}",
            where=next(iter(hashes.values())).where if hashes else where,
            hint="add these lines with their hashes:\n"
            + "\n".join(f"{p.name}=={p.version} --hash=sha256:{p.sha256}" for p in missing),
        )
