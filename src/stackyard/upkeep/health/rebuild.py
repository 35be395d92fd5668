"""Builds a revision again beside itself, from its lock and the caches, as a source for damaged files."""

from __future__ import annotations

import os
from collections.abc import Iterator

from stackyard.core.progress import Progress
from stackyard.host.files import at
from stackyard.inputs.models import Variant
from stackyard.inputs.workspace import Workspace
from stackyard.lock.lockfile import text as lockfile
from stackyard.lock.lockfile.model import LockedVariant
from stackyard.make import interpreter, layer, seal
from stackyard.make.bytecode import cache as bytecode
from stackyard.make.collisions.settle import BuildCollisions
from stackyard.make.conda import install as conda
from stackyard.make.job import Job
from stackyard.make.wheels import cached
from stackyard.make.wheels import install as pip
from stackyard.yard.layout import Yard
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import BuildRecord


def built_again(record: BuildRecord, workspace: Workspace, place: RevisionPaths, progress: Progress) -> Job:
    """Run the build steps that need no user files: all except a post script. File collisions resolve as recorded.

    Args:
        place: the path to build at, which does not exist.
    """
    locked = lockfile.read(RevisionPaths.of(record.path).lock).variants[0]
    winners = {
        path: collision.winner for collision in record.collisions for path in collision.files if collision.winner
    }
    variant = Variant(
        stack=record.stack, version=record.version, name=record.variant, base=record.base, collisions=winners
    )
    job = Job(workspace.site, workspace.yard, variant, locked, place, record.module, progress, deep=True)
    with at.parent(place.yard, job.work, make=True) as (directory, name):
        os.mkdir(name, 0o700, dir_fd=directory)
    settling = BuildCollisions(job)
    ground = layer.ground(job)
    python = ground.prepare(job)
    if locked.conda:
        conda.install(job)
        settling.conda()
        ground.link_libraries(job)
    python = python or interpreter.prepare(job)
    locked_wheels = [*pip.locked_wheels(job), *_compiled_wheels(record, locked, workspace.yard)]
    pip.install(job, locked_wheels)
    settling.settle(locked_wheels)
    bytecode.add(job, locked_wheels, settling.sources)
    settling.finish()
    ground.finish(job)
    seal.seal(job, python)
    return job


def _compiled_wheels(record: BuildRecord, locked: LockedVariant, yard: Yard) -> Iterator[pip.Wheel]:
    """The wheels compiled for this revision that a cache still has."""
    keys = {package.name: package.build for package in record.packages if package.kind == "pip"}
    for package in locked.pip:
        key = keys.get(package.name, "")
        if package.kind != "wheel" and key:
            wheel = cached.kept(yard, package, key, record.prefix)
            if wheel is not None:
                yield wheel
