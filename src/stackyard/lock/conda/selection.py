"""The packages that channels have, all or a selection by MatchSpecs, without a solve: for a mirror of a channel."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path

from rattler import Gateway, MatchSpec, RepoDataRecord, Subdir
from rattler.exceptions import GatewayError, InvalidMatchSpecError

from stackyard.core import secrets
from stackyard.core.errors import InputError, StackyardError, Where
from stackyard.core.quoting import quoted
from stackyard.host.tools.rattler import client
from stackyard.inputs.models import Site
from stackyard.inputs.reading.paths import absolute
from stackyard.lock.conda.channels import Channel, Resolver
from stackyard.lock.conda.solve import hashed_package, target_of
from stackyard.lock.explain.reachability import check
from stackyard.lock.lockfile.model import CondaPackage

_AT_ONCE = 8


def select_packages(
    site: Site, channels: Sequence[str], specs: Sequence[str], platforms: Sequence[str], cache: Path
) -> tuple[CondaPackage, ...]:
    """Every package of these channels that a spec fits, on these platforms and noarch, by file name.

    What the packages depend on is not added: a lock of an environment names that.

    Args:
        channels: names or URLs, by the site's policy; a path starts at the working directory.
        specs: MatchSpecs, whose names may have ``*`` and ``?``; none: every package.
        cache: the directory where repodata is kept.

    Raises:
        InputError: the site denies a channel; a spec is not valid, or fits no package.
        StackyardError: a channel cannot be read, or a package differs from its channel's index.
    """
    found = _channels(site, channels)
    check([target_of(channel) for channel in found])
    try:
        records = asyncio.run(_select(found, specs or ("*",), platforms, cache))
    except GatewayError as error:
        text = secrets.redacted(str(error))
        raise StackyardError(f"cannot read a channel: {text.splitlines()[0] if text else 'no reason given'}",
                             detail=text, hint="a channel has noarch/repodata.json") from error  # fmt: skip
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        packages = pool.map(lambda record: hashed_package(record, found), records)
        return tuple(sorted(packages, key=lambda package: package.url))


def _channels(site: Site, names: Iterable[str]) -> list[Channel]:
    resolver = Resolver(site.channels, Where(""))
    here = Path.cwd()
    written = (absolute(name, here).as_uri() if name.startswith(("/", "~", ".")) else name for name in names)
    return list({channel.url: channel for name in written for channel in resolver.resolve(name)}.values())


async def _select(
    channels: Sequence[Channel], specs: Sequence[str], platforms: Sequence[str], cache: Path
) -> list[RepoDataRecord]:
    """The records that one of the specs fits, each once."""
    gateway = Gateway(cache_dir=cache, client=client([channel.url for channel in channels]), show_progress=False)
    sources = [f"{secrets.seen(channel.url)}/" for channel in channels]
    subdirs = [Subdir(name) for name in (*platforms, "noarch")]
    names: list[str] = []
    if any(_is_pattern(spec) for spec in specs):
        names = sorted(str(getattr(name, "normalized", name)) for name in await gateway.names(sources, subdirs))
    records: dict[str, RepoDataRecord] = {}
    for spec in specs:
        matches = [match_spec(text) for text in _exact(spec, names)]
        result = await gateway.query(sources, subdirs, matches, recursive=False) if matches else ()
        selected = {record.url: record for source in result for record in source}
        if not selected:
            searched = f"{', '.join(channel.name for channel in channels)} for {', '.join(platforms)}"
            raise InputError(f"no package fits {quoted(spec)} in {searched}",
                             hint="write name, version and build as the channel has them")  # fmt: skip
        records |= selected
    return list(records.values())


def _is_pattern(spec: str) -> bool:
    return bool(set("*?") & set(_split(spec)[0]))


def _split(spec: str) -> tuple[str, str]:
    """The name of a spec, and the rest of it."""
    match = re.match(r"\s*([A-Za-z0-9_.*?-]+)(.*)", spec, re.DOTALL)
    return (match[1], match[2]) if match else (spec, "")


def _exact(spec: str, names: Iterable[str]) -> list[str]:
    """A spec for each package that its name fits."""
    name, rest = _split(spec)
    return [f"{known}{rest}" for known in names if fnmatchcase(known, name)] if _is_pattern(spec) else [spec]


def match_spec(text: str) -> MatchSpec:
    """A MatchSpec. Raises InputError: it is not valid."""
    try:
        return MatchSpec(text)
    except InvalidMatchSpecError as error:
        raise InputError(
            f"{quoted(text)} is not a conda requirement: {error}",
            hint="write it as name, version and build, e.g. `numpy 1.26.*`",
        ) from error
