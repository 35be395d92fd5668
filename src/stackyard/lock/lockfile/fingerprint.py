"""The inputs of a solve as lines of text: their hash tells whether a lock is fresh, their difference why it is not.

No solver and no network is used, so that a deploy with nothing to do is fast. Settings specific to this machine (its
pip.conf, its own virtual packages) are left out: a lock made elsewhere stays fresh here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from stackyard.core.errors import Where
from stackyard.core.late import dataclass
from stackyard.core.secrets import shown
from stackyard.host.files.hashing import local_path, sha256_file
from stackyard.inputs.conda.selectors import holds
from stackyard.inputs.models import CondaRequirement, PipRequirement, Site, Variant
from stackyard.inputs.stacks.buildinputs import build_inputs
from stackyard.lock.accelerator import AXES
from stackyard.lock.conda.channels import Resolver
from stackyard.lock.conda.virtual import declared, uses_gpu
from stackyard.lock.pip.snapshot import sha256_tree

_VERSION = "1"


@dataclass(frozen=True)
class Fingerprint:
    """The lines that a solve depends on: requirements in the order of the file, and all other inputs."""

    requested: tuple[str, ...]
    policy: tuple[str, ...]

    @property
    def digest(self) -> str:
        """sha256 over all lines; the order of requirements does not matter."""
        text = "\n".join([_VERSION, *sorted(self.requested), "", *self.policy])
        return hashlib.sha256(text.encode()).hexdigest()


def fingerprint(variant: Variant, site: Site, platform: str) -> Fingerprint:
    """The lines for one variant on one platform.

    Raises:
        InputError: a channel is denied or contains an unset variable, or a patch or project does not exist.
    """
    directory = spec_directory(variant)
    conda = [shown(r.url or r.spec) for r in conda_requirements(variant, platform)]
    pip = [f"pip: {_pip_line(r)}" for r in pip_requirements(variant, platform)]
    lines = [*_conda_policy(variant, site, platform), *_pip_policy(variant, site, platform)]
    return Fingerprint(
        tuple(_portable(line, directory) for line in (*conda, *pip)),
        tuple(_portable(line, directory) for line in lines),
    )


def where_of(variant: Variant) -> Where:
    """The place of a variant, for errors."""
    file = variant.place.file or (variant.files[0] if variant.files else "")
    return Where(file, variant.place.line, variant.place.column)


def place_of(variant: Variant) -> Where | None:
    """The place of a variant for errors, or None for one without a file."""
    where = where_of(variant)
    return where if where.file else None


def option_places(variant: Variant) -> dict[str, Where]:
    """The place of each index and find-links entry of the file, for errors."""
    places = variant.environment.option_places.items()
    return {value: place for value, place in places if place.file}


def spec_directory(variant: Variant) -> Path | None:
    """The directory of the file that a variant comes from, absolute; None for one without a file."""
    file = where_of(variant).file
    return Path(file).absolute().parent if file else None


def conda_requirements(variant: Variant, platform: str) -> tuple[CondaRequirement, ...]:
    """The conda requirements for a platform."""
    return tuple(r for r in variant.environment.conda if _holds(r.selector, variant, platform))


def pip_requirements(variant: Variant, platform: str) -> tuple[PipRequirement, ...]:
    """The pip requirements for a platform; uv evaluates their markers."""
    return tuple(r for r in variant.environment.pip if _holds(r.selector, variant, platform))


def constraints(variant: Variant, platform: str) -> tuple[PipRequirement, ...]:
    """The pip constraints for a platform."""
    return tuple(r for r in variant.environment.constraints if _holds(r.selector, variant, platform))


def _holds(selector: str, variant: Variant, platform: str) -> bool:
    return not selector or holds(selector, platform, variant.axes)


def _pip_line(requirement: PipRequirement) -> str:
    hashes = "".join(f" --hash={h}" for h in requirement.hashes)
    text = f"{requirement.line}{hashes}" + (f" (from {requirement.index})" if requirement.index else "")
    return shown(text)


def _conda_policy(variant: Variant, site: Site, platform: str) -> Iterator[str]:
    if variant.environment.conda or (
        not variant.on and variant.interpreter.completed(site.interpreter).source == "conda"
    ):
        channels = Resolver(site.channels, where_of(variant)).search_list(variant.environment, platform, variant.axes)
        yield f"channels {' '.join(c.shown for c in channels)}"
        yield f"channel-priority {site.channels.priority}"
        yield from (f"pin {pin}" for pin in site.pins)
        if site.channels.exclude_newer:
            yield f"exclude-newer {site.channels.exclude_newer}"
    virtual = declared(site, platform, variant.axes)
    here = f"of this machine{'' if uses_gpu(variant.axes) else ', without its GPUs'}"
    yield f"virtual {' '.join(virtual.packages) if virtual else here}"
    if variant.base is not None:
        yield f"base {variant.base.id} {variant.base.hash[:16]} in {variant.base.yard}"
        return
    interpreter = variant.interpreter.completed(site.interpreter)
    yield f"interpreter {' '.join(w for w in (interpreter.source, interpreter.version, interpreter.path) if w)}"


def _pip_policy(variant: Variant, site: Site, platform: str) -> Iterator[str]:
    requirements = pip_requirements(variant, platform)
    if not requirements:
        return
    if variant.torch_backend:
        yield f"torch-backend {variant.torch_backend}"
    yield from (f"torch-axis {axis} {variant.axes[axis]}" for axis in AXES if variant.axes.get(axis))
    yield from (f"constraint {shown(r.line)}" for r in constraints(variant, platform))
    yield from _given(variant.environment.pip_options.model_dump(), "pip-option")
    yield from _given(site.pip.model_dump(exclude={"read_pip_conf"}), "site-pip")
    yield from (f"pip-pin {pin}" for pin in site.pins)
    if site.channels.exclude_newer:
        yield f"pip-exclude-newer {site.channels.exclude_newer}"
    if not site.pip.read_pip_conf:
        yield "site-pip read-pip-conf no"
    inputs = {name: build_inputs(variant.build, name) for name in sorted(variant.build.packages)}
    inputs[""] = build_inputs(variant.build, "")
    for name, values in inputs.items():
        yield from (f"build {name or 'every package'}: {key} = {value}" for key, value in values.items())
    for name, build in sorted(variant.build.packages.items()):
        yield f"build {name}: no-binary = {str(build.no_binary).lower()}"
    yield from (f"config {r.name}: {text}" for r in requirements for text in r.config_settings)
    yield from (line for r in requirements for line in _contents(r))


def _given(values: Mapping[str, object], word: str) -> Iterator[str]:
    for key, value in sorted(values.items()):
        if value:
            pairs = value.items() if isinstance(value, Mapping) else ()
            words = () if pairs else value if isinstance(value, (tuple, list)) else (value,)
            plain = [*(shown(str(item), base=True) for item in words)]
            plain += [f"{shown(k, base=True)}={shown(v, base=True)}" for k, v in pairs]
            text = " ".join(plain)
            yield f"{word} {key.replace('_', '-')} {text}"


def _contents(requirement: PipRequirement) -> Iterator[str]:
    """The hash of the target of a local requirement: a project's snapshot, or a file."""
    path = local_path(requirement.path or requirement.url.split("#")[0])
    if requirement.kind not in ("path", "url") or path is None:
        return
    if path.is_dir():
        yield f"project {path} sha256:{sha256_tree(path)}"
    elif path.is_file():
        yield f"file {path} sha256:{sha256_file(path)}"


def _portable(line: str, directory: Path | None) -> str:
    """The line with paths in the spec's directory made relative, so that every clone has the same hash."""
    if directory is None or str(directory) == "/":
        return line
    return line.replace(f"{directory}/", "./")


def changes(old: Iterable[str], new: Iterable[str]) -> list[str]:
    """The lines that only one side has: ``+ line`` and ``- line``."""
    before, after = list(old), list(new)
    removed = [f"- {line}" for line in before if line not in after]
    return removed + [f"+ {line}" for line in after if line not in before]
