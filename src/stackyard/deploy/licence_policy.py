"""Compares the licences of locked packages with the site's policy."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from stackyard.core.progress import Progress
from stackyard.deploy.described.packages import packages_of
from stackyard.deploy.locking import FreshLock
from stackyard.inputs.models import Variant
from stackyard.inputs.pip.settings import settings
from stackyard.inputs.workspace import Workspace
from stackyard.lock import licences
from stackyard.lock.licences import PackageLicence, Policy
from stackyard.lock.lockfile.model import LockedVariant
from stackyard.lock.lockfile.text import read
from stackyard.make.mirror.read import opened
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import BuildRecord

if TYPE_CHECKING:
    from stackyard.deploy.deploy import Request


def of_variant(locked: LockedVariant, variant: Variant | None, workspace: Workspace) -> list[PackageLicence]:
    """The licence of every package of a locked variant.

    Args:
        variant: the variant, with its sources of pip packages; None if its file is unknown.
    """
    from stackyard.inputs.models import PipOptions

    options = variant.environment.pip_options if variant else PipOptions()
    pip = settings(workspace.site.pip, options, os.environ)[0]
    mirror = opened(workspace.site.mirror, pip) if workspace.site.mirror else None
    packages = tuple(mirror.pip(p) if mirror and p.sha256 in mirror.held.files else p for p in locked.pip)
    return licences.stated(replace(locked, pip=packages), pip, workspace.yard)


def of_revision(record: BuildRecord, workspace: Workspace) -> list[PackageLicence]:
    """The licence of every package of a revision: from its record, else from its files, else as for a lock."""
    packages = [PackageLicence(p.name, p.version, p.kind, p.licence) for p in packages_of(record) if not p.of_base]
    if all(package.licence for package in packages):
        return packages
    (locked,) = read(RevisionPaths.of(record.path).lock).variants
    asked = {(package.kind, package.name): package.licence for package in of_variant(locked, None, workspace)}
    return [replace(p, licence=p.licence or asked.get((p.kind, p.name), "")) for p in packages]


def require_allowed(locked: FreshLock, request: Request, progress: Progress) -> None:
    """Refuse a lock with a package whose licence the site denies.

    Raises:
        InputError: lists every such package of a variant.
    """
    site, said = request.site, request.site.licences
    policy = Policy(said.deny, said.allow, said.unknown == "deny")
    variants = {(v.version, v.name): v for v in locked.stack.wanted}
    for variant in (v for v in locked.lock.variants if (v.version, v.variant) in variants):
        label = f"{variant.stack} {variant.version} {variant.variant}".rstrip()
        packages = of_variant(variant, variants.get((variant.version, variant.variant)), Workspace(site, request.yard))
        licences.require_allowed(f"{label} for {variant.platform}", packages, policy, progress.notice)
