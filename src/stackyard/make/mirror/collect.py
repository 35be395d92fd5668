"""Collects the needs of several locks, in rounds: the archives, then the build requirements of source packages."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from stackyard.core.errors import StackyardError, Where
from stackyard.core.progress import Progress
from stackyard.host.files.hashing import local_path
from stackyard.host.files.scratch import scratch
from stackyard.host.tools.pipconf import PipSettings
from stackyard.inputs.models import PipRequirement, Variant
from stackyard.inputs.pip.requirement import Context, parse_requirement
from stackyard.inputs.stacks.buildinputs import package_build
from stackyard.lock.lockfile.model import LockedVariant, PipPackage
from stackyard.lock.pip.resolve import PipRequest, solve_pip
from stackyard.make.mirror.git import checked_out
from stackyard.make.mirror.read import MirrorIndex
from stackyard.make.mirror.requires import asked_for
from stackyard.make.mirror.write import Contents, MirrorUpdate, extend, present
from stackyard.make.wheels import source
from stackyard.make.wheels.key import config_settings


@dataclass(frozen=True)
class Sources:
    """The source packages of one locked variant.

    Attributes:
        variant: the variant, with their build settings.
        settings: the sources of pip packages.
        cache: uv's cache.
        directory: the mirror, which has their archives.
    """

    locked: LockedVariant
    variant: Variant
    settings: PipSettings
    cache: Path
    directory: Path

    def needed(self, index: MirrorIndex, progress: Progress) -> tuple[PipPackage, ...]:
        """The packages needed for compiling them, recursively.

        Raises:
            StackyardError: they cannot be resolved.
        """
        packages: dict[str, PipPackage] = {}
        for package in self.locked.pip:
            if package.kind != "wheel":
                progress.phase("mirror", "resolve", f"what compiling {package.name} {package.version} needs")
                lines, problems = self._lines(package, index)
                for problem in problems:
                    progress.notice(
                        f"what {package.name} {package.version} asks for at its build is not known: {problem}"
                    )
                packages |= {pip_source.sha256: pip_source for pip_source in self._resolved(package, lines)}
        return tuple(packages.values())

    def _lines(self, package: PipPackage, index: MirrorIndex) -> tuple[tuple[str, ...], tuple[str, ...]]:
        how = package_build(self.variant.build, package.name)
        if how is not None and not how.isolation:
            return how.requires, ()
        with scratch("sources") as work:
            (work / "env").mkdir()
            root = self._root(package, index, work / "source") / package.subdirectory
            more = how.requires if how else ()
            return asked_for(root, self.settings, self.cache, config_settings(package, how), work / "env", more)

    def _root(self, package: PipPackage, index: MirrorIndex, into: Path) -> Path:
        into.mkdir()
        if package.kind == "vcs":
            return checked_out(self.directory / index.commits[package.commit], package.commit, into)
        if package.kind == "path":
            path = local_path(package.url)
            if path is None or not path.exists():
                raise StackyardError(f"no such local project: {package.url} of {package.name}")
            if path.is_dir():
                return path
        else:
            path = self.directory / index.files[package.sha256]
        return source.unpacked(path, into)

    def _resolved(self, package: PipPackage, lines: tuple[str, ...]) -> tuple[PipPackage, ...]:
        if not lines:
            return ()
        subject = f"what compiling {package.name} {package.version} needs"
        request = PipRequest(
            subject, self.locked.platform, self._python, self._glibc, tuple(_requirements(lines, subject)),
            self.settings, self.cache,
        )  # fmt: skip
        return solve_pip(request).packages

    @property
    def _python(self) -> str:
        return self.locked.interpreter.version or next(p.version for p in self.locked.conda if p.name == "python")

    @property
    def _glibc(self) -> str:
        """The C library version assumed by the lock: ``__glibc=2.28=0``."""
        words = (text.replace("==", "=").split("=") for text in self.locked.virtual)
        return next((word[1] for word in words if word[0] == "__glibc" and len(word) > 1), "")


def _requirements(lines: tuple[str, ...], subject: str) -> Iterator[PipRequirement]:
    context = Context(Path("/"), os.environ, [])
    return (parse_requirement(line, Where(subject), context) for line in lines)


@dataclass
class Collection:
    """Locked variants whose files are collected in one mirror. `cache`: uv's."""

    cache: Path
    contents: Contents = field(default_factory=Contents)
    _parts: list[tuple[LockedVariant, Variant, PipSettings]] = field(default_factory=list)

    def add(self, locked: LockedVariant, variant: Variant, settings: PipSettings) -> None:
        """Add the files of one locked variant."""
        self.contents.add(locked, settings)
        self._parts.append((locked, variant, settings))

    def put(self, directory: Path, progress: Progress) -> MirrorUpdate:
        """Fetch everything into a mirror; then the build requirements of source packages, recursively."""
        update = extend(directory, self.contents, progress)
        fetched, size = list(update.fetched), update.bytes
        parts = [part for part in self._parts if any(p.kind != "wheel" for p in part[0].pip)]
        while parts:
            sources = [self._compiling(part, directory, progress) for part in parts]
            update = extend(directory, self.contents, progress)
            fetched += update.fetched
            size += update.bytes
            parts = [part for part in sources if part is not None]
        return MirrorUpdate(tuple(fetched), size)

    def _compiling(
        self, part: tuple[LockedVariant, Variant, PipSettings], directory: Path, progress: Progress
    ) -> tuple[LockedVariant, Variant, PipSettings] | None:
        """Add the build requirements of a part's source packages; returns those to be compiled in turn."""
        locked, variant, settings = part
        packages = Sources(locked, variant, settings, self.cache, directory).needed(present(directory), progress)
        fresh = tuple(p for p in packages if p.kind != "wheel" and p.sha256 not in self.contents.files)
        self.contents.add_pip(packages, settings)
        return (replace(locked, pip=fresh), variant, settings) if fresh else None
