"""What several locks need together, fetched in rounds: the archives, then what compiling those needs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from stackyard.core.progress import Progress
from stackyard.host.tools.pipconf import PipSettings
from stackyard.inputs.models import Variant
from stackyard.lock.lockfile.model import LockedVariant
from stackyard.make.mirror.sources import Sources
from stackyard.make.mirror.write import Contents, Made, extend, present


@dataclass
class Collection:
    """Locked variants whose files belong into one mirror. `cache`: uv's."""

    cache: Path
    contents: Contents = field(default_factory=Contents)
    _parts: list[tuple[LockedVariant, Variant, PipSettings]] = field(default_factory=list)

    def add(self, locked: LockedVariant, variant: Variant, settings: PipSettings) -> None:
        """Add what one locked variant names."""
        self.contents.add(locked, settings)
        self._parts.append((locked, variant, settings))

    def put(self, directory: Path, progress: Progress) -> Made:
        """Fetch everything into a mirror; then what compiling the source packages needs, until nothing is new."""
        made = extend(directory, self.contents, progress)
        fetched, size = list(made.fetched), made.bytes
        parts = [part for part in self._parts if any(p.kind != "wheel" for p in part[0].pip)]
        while parts:
            found = [self._compiling(part, directory, progress) for part in parts]
            made = extend(directory, self.contents, progress)
            fetched += made.fetched
            size += made.bytes
            parts = [part for part in found if part is not None]
        return Made(tuple(fetched), size)

    def _compiling(
        self, part: tuple[LockedVariant, Variant, PipSettings], directory: Path, progress: Progress
    ) -> tuple[LockedVariant, Variant, PipSettings] | None:
        """Add what compiling the source packages of a part needs; return what of that is to be compiled too."""
        locked, variant, settings = part
        packages = Sources(locked, variant, settings, self.cache, directory).needed(present(directory), progress)
        fresh = tuple(p for p in packages if p.kind != "wheel" and p.sha256 not in self.contents.files)
        self.contents.add_pip(packages, settings)
        return (replace(locked, pip=fresh), variant, settings) if fresh else None
