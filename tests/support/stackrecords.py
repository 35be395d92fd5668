"""Build records made by hand, for tests that need no build: prefixes are only names here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from stackyard.core.change import EnvironmentChange
from stackyard.expose.generation import write_modules
from stackyard.inputs.models import Site
from stackyard.inputs.workspace import Workspace
from stackyard.yard.layout import Yard
from stackyard.yard.revision.manifest import Entry
from stackyard.yard.revision.record import Activation, BuildRecord, PackageRecord

PYTORCH = (
    PackageRecord("python", "3.11.4", "conda", "h1_0_cpython"),
    PackageRecord("numpy", "1.26.4", "conda", "py311_0", requires=("python >=3.11",)),
    PackageRecord("pytorch", "2.13.0", "conda", "cpu_0", requires=("python >=3.11", "numpy >=1.26")),
    PackageRecord("horovod", "0.28.1", "pip", requires=("cloudpickle",)),
    PackageRecord("cloudpickle", "3.0.0", "pip"),
)
CONDA = (PackageRecord("python", "3.11.4", "conda"), PackageRecord("conda", "24.1.2", "conda", requires=("python",)))


def record(
    yard: Yard,
    stack: str,
    version: str,
    revision: int = 1,
    *,
    variant: str = "py311",
    packages: Sequence[PackageRecord] = PYTORCH,
    change: EnvironmentChange | None = None,
    settings: dict[str, Any] | None = None,
    **more: Any,
) -> BuildRecord:
    """A record as a build would leave it."""
    directory = f"{version}-{variant}-{revision}"
    paths = yard.revision(stack, directory)
    paths.root.mkdir(parents=True, exist_ok=True)
    return BuildRecord(
        stack=stack, version=version, variant=variant, revision=revision, module=f"{stack}/{directory}", input_hash="0",
        platform="linux-64", path=str(paths.root), prefix=str(paths.prefix),
        created=f"2026-03-{revision:02d}T00:00:00+00:00", packages=tuple(packages),
        activation=Activation(change or EnvironmentChange()), settings=settings or {}, **more,
    )  # fmt: skip


def entry(of: BuildRecord, *aliases: str, **more: Any) -> Entry:
    """The entry of a record; `more` sets default, state, hidden, deprecated."""
    return Entry(
        stack=of.stack, version=of.version, variant=of.variant, revision=of.revision, module=of.module,
        folder=of.path, created=of.created, aliases=aliases, **more,
    )  # fmt: skip


def publish(
    yard: Yard, entries: Iterable[Entry], records: Iterable[BuildRecord], number: int = 1, site: Site | None = None
) -> Path:
    """Write a generation and make it the current one; its ``modules`` directory."""
    directory = yard.generation(number).modules
    write_modules(directory, list(entries), {each.module: each for each in records}, Workspace(site or Site(), yard))
    yard.modules.unlink(missing_ok=True)
    yard.modules.symlink_to(f"generations/{number}/modules")
    return directory
