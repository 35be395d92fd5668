"""Whether a revision runs on a base, and a base on a site's nodes: checked before anything is written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from stackyard.core.errors import InputError
from stackyard.core.findings import Finding
from stackyard.images import needs
from stackyard.images.bases.model import Base
from stackyard.images.bases.store import StoredBase
from stackyard.images.bindings.check import drivers_of
from stackyard.images.bindings.drivers import Toolkit, check_driver, numbers
from stackyard.images.inventory import Inventory, read
from stackyard.images.relocation.parts import interpreter
from stackyard.inputs.sites.sitemodels import Site
from stackyard.yard.revision.record import BuildRecord

_HOST = ("/home", "/tmp", "/var/tmp", "/root", "/proc", "/sys", "/dev")


def require(record: BuildRecord, stored: StoredBase, place: str) -> None:
    """Raise if a revision cannot run on a base, at this path.

    Raises:
        InputError: it is for another platform, for a newer C library, or needs an interpreter that the base lacks.
        MissingError: its image cannot be mounted on this machine for reading.
    """
    base = stored.base
    if record.platform not in (base.platform, "noarch"):
        raise InputError(f"{record.module} is for {record.platform}, and the base {base.name} for {base.platform}",
                         hint="use a base for the same platform")  # fmt: skip
    _require_c_library(record, base)
    files = read(stored.paths.image)
    _require_no_link(record, base, files, place)
    if record.interpreter.get("source") == "host":
        _require_file(record, base, files, record.interpreter["path"])


def _require_c_library(record: BuildRecord, base: Base) -> None:
    homes = (needs.of_tree(place) for place in interpreter(record).values() if not place.is_symlink())
    needed = max((needs.of_record(record), *homes), key=lambda need: numbers(need.glibc))
    kind, _, version = base.software.libc.partition(" ")
    has = version if kind == "glibc" else ""
    needs.require(needed, has, stack=record.module, system=f"the base {base.name}")


def _require_no_link(record: BuildRecord, base: Base, files: Inventory, place: str) -> None:
    """Raise if a directory of the overlay would hide a link of the base at the same path."""
    for above in map(str, Path(place).parents):
        if link := files.target(above):
            where = f"in the base {base.name} {above} is a link to {link}"
            raise InputError(f"{record.module} is to be in {place}, and {where}",
                             hint="use a base without that link, or another --prefix")  # fmt: skip


def _require_file(record: BuildRecord, base: Base, files: Inventory, path: str) -> None:
    """Raise if the base lacks the Python on which the revision's virtual environment is built."""
    if not files.real(path):
        raise InputError(
            f"{record.module} uses the interpreter {path} of the machine that it was built on, and the base "
            f"{base.name} does not have that",
            hint="deploy it with `interpreter: {source: uv}` or conda's Python, which go with it",
        )


def findings(base: Base, site: Site) -> list[Finding]:
    """Findings about running a base on the GPU drivers of a site's node kinds."""
    toolkits = [Toolkit(toolkit["vendor"], toolkit["version"], toolkit["path"]) for toolkit in base.software.toolkits]
    pairs = ((toolkit, driver) for toolkit in toolkits for driver in drivers_of(site))
    tried = [check_driver(toolkit, driver) for toolkit, driver in pairs if driver.vendor == toolkit.vendor]
    return [finding for finding in tried if finding is not None]


def require_driver(base: Base, site: Site) -> list[Finding]:
    """The findings, if at least one of the site's node kinds can run the base.

    Raises:
        InputError: none of them can.
    """
    results = findings(base, site)
    refused = [finding for finding in results if finding.severity == "refused"]
    vendors = {toolkit["vendor"] for toolkit in base.software.toolkits}
    kinds = [driver for driver in drivers_of(site) if driver.vendor in vendors]
    if refused and len(refused) >= len(kinds):
        raise InputError(refused[0].message + f" ({refused[0].reason})", hint=refused[0].remedy or None)
    return results


def notices(stored: StoredBase, place: str) -> Iterator[str]:
    """Sentences about differences when this revision runs in a container of this base."""
    hidden = next((directory for directory in _HOST if Path(place).is_relative_to(directory)), "")
    if hidden:
        yield (
            f"its files are in {place}, and a runtime shows the host's {hidden} there: "
            "start it with --no-home, --contain or --no-mount, or choose another --prefix"
        )
    if not stored.base.software.shell:
        yield f"the base {stored.base.name} has no /bin/sh: `apptainer shell` and `run` do not work, `exec` does"
    for own in stored.base.software.environments:
        yield (
            f"the base has a Python of its own in {own.path} ({own.kind}{' ' + own.python if own.python else ''}); "
            "the revision's comes before it on PATH"
        )
