"""A published yard in milliseconds: revisions with a program and a few files, which no solver and no build has made."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from stackyard.core.change import EnvironmentChange, Prepend, Set
from stackyard.deploy import generation
from stackyard.deploy.generation import Step
from stackyard.deploy.published import names
from stackyard.inputs.models import Site
from stackyard.inputs.sites.sitemodels import ModulePolicy
from stackyard.inputs.workspace import Workspace
from stackyard.yard import disk
from stackyard.yard.layout import Yard
from stackyard.yard.revision import revisions
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.manifest import Manifest
from stackyard.yard.revision.record import BuildRecord
from support import stackrecords

TCL = Site(modules=ModulePolicy(formats=("tcl",)))
"""Without Lua no spider cache is made, which takes seconds."""


def build(yard: Yard, stack: str, version: str, revision: int = 1) -> BuildRecord:
    """A revision with ``bin/hello``, which waits where it is given seconds, and a sealed directory of files."""
    paths = yard.revision(stack, f"{version}-py311-{revision}")
    program = paths.prefix / "bin" / "hello"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\necho "hello {stack} {version}"\n[ -z "$1" ] || exec sleep "$1"\n')
    program.chmod(0o555)
    (paths.prefix / "share").mkdir()
    (paths.prefix / "share" / "data").write_text(f"{stack} {version} {revision}\n" * 100)
    change = EnvironmentChange((Prepend("PATH", str(program.parent)), Set("HELLO_HOME", str(paths.prefix))))
    record = stackrecords.record(yard, stack, version, revision, change=change)
    record = replace(record, disk=disk.measure([path.lstat() for path in paths.prefix.rglob("*")], "copy"))
    for directory in (paths.prefix / "share", paths.prefix / "bin", paths.prefix):
        directory.chmod(0o555)
    revisions.mark(record)
    return record


def publish(yard: Yard, records: Iterable[BuildRecord], site: Site = TCL) -> Manifest:
    """Publish these beside what is published."""
    new = [stackrecords.entry(record, input_hash=record.module) for record in records]

    def step(base: generation.Base) -> Step:
        return Step(names.claim([*base.entries, *new]), f"deploy {', '.join(e.module for e in new)}")

    with generation.draft(Workspace(site, yard)) as draft:
        return draft.publish(step)


def make(root: Path, *versions: str, stack: str = "tool", site: Site = TCL) -> Yard:
    """A yard that has published these versions of a stack, one generation for each."""
    yard = Yard(root)
    for version in versions:
        publish(yard, [build(yard, stack, version)], site)
    return yard


def files(directory: Path) -> dict[str, tuple[int, bytes]]:
    """The mode and the bytes of every file of a tree."""
    found = (path for path in directory.rglob("*") if path.is_file() and not path.is_symlink())
    return {str(p.relative_to(directory)): (p.stat().st_mode, p.read_bytes()) for p in found}


def give_site(directory: Path, yard: Path | None = None, text: str = "") -> Path:
    """A site.yaml with Tcl modules only."""
    file = directory / "site.yaml"
    file.write_text(f"modules: {{formats: [tcl]}}\n{f'yard: {yard}' if yard else ''}\n{text}\n")
    return file


def revision(yard: Yard, version: str, stack: str = "tool") -> RevisionPaths:
    """The paths of the first revision of a version."""
    return yard.revision(stack, f"{version}-py311-1")


def allow_removal(root: Path) -> None:
    """Sealed directories keep pytest from removing its temporary ones, where you are not root."""
    for directory, _, _ in os.walk(root):
        Path(directory).chmod(0o755)
