"""The packages of a build for its record, with their licences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from stackyard.core.names import canonical
from stackyard.lock import licencetexts
from stackyard.lock.base import extension as onbase
from stackyard.lock.base.installed import site_packages
from stackyard.make.job import Job
from stackyard.yard.revision.record import KEY_START, PackageRecord

if TYPE_CHECKING:
    from stackyard.make.wheels.cached import CompiledWheel


def packages_of(job: Job, compiled: Sequence[CompiledWheel]) -> tuple[PackageRecord, ...]:
    """All packages for the record, conda's first. A compiled package's build string is the start of its wheel's key.

    The licences of conda packages are in the lock, those of pip packages in what was installed.
    """
    keys = {c.package.name: c.key[:KEY_START] for c in compiled}
    stated = licencetexts.installed(_package_directory(job)) if job.locked.pip else {}
    conda = (
        PackageRecord(
            p.name, p.version, "conda", p.build, p.channel, p.url, p.sha256, p.size, p.depends,
            licence=licencetexts.of_conda(p),
        )
        for p in job.locked.conda
    )  # fmt: skip
    below = (replace(package, of_base=True) for package in onbase.packages(job.variant.base))
    pip = (
        PackageRecord(
            p.name, p.version, "pip", keys.get(p.name, ""), p.index, p.url, p.sha256, p.size, p.requires,
            licence=stated.get(canonical(p.name), ""),
        )
        for p in job.locked.pip
    )  # fmt: skip
    return (*below, *conda, *pip)


def _package_directory(job: Job) -> Path:
    """The directory of the pip packages: in the build's prefix, or in the adopted one."""
    adopted = job.variant.adopted
    if adopted is None:
        return job.site_packages
    return site_packages(Path(adopted.prefix), job.python_version, job.locked.conda)
