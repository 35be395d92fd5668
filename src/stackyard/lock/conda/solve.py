"""The conda half of a lock: probes the channels, solves with rattler, and makes each record a `CondaPackage`."""

from __future__ import annotations

import asyncio
import json
import re
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from rattler import (
    BuildString,
    ChannelPriority,
    Gateway,
    GenericVirtualPackage,
    MatchSpec,
    PackageName,
    RepoDataRecord,
    Subdir,
    Version,
    solve,
)
from rattler.exceptions import GatewayError, InvalidMatchSpecError, SolverError

from stackyard.core import secrets
from stackyard.core.errors import InputError, StackyardError, Where
from stackyard.core.names import conda_name
from stackyard.core.quoting import quoted
from stackyard.host.tools.rattler import client
from stackyard.inputs.stacks.newest import end_of
from stackyard.lock.conda.channels import Channel
from stackyard.lock.conda.preferences import OfferedPackages, offered
from stackyard.lock.conda.records import repodata_record
from stackyard.lock.explain import exported
from stackyard.lock.explain.reachability import Target, check
from stackyard.lock.explain.relaxation import PINNED
from stackyard.lock.hashed import hashed
from stackyard.lock.lockfile.model import CondaPackage
from stackyard.lock.pip import pins
from stackyard.lock.renewal import ALL_FREE, PreferredPackages
from stackyard.lock.satisfied import fits

RELAX_BUDGET_S = 5.0
_INDEXES = ("repodata.json", "repodata.json.zst", "repodata_shards.msgpack.zst")
_PRIORITY = {"strict": ChannelPriority.Strict, "flexible": ChannelPriority.Strict, "disabled": ChannelPriority.Disabled}
# "flexible" prefers the first channel that has a package and takes others only where it must: strict, then disabled.


@dataclass(frozen=True)
class CondaRequest:
    """A question to the conda solver.

    Attributes:
        subject: the variant and platform, for messages.
        specs: MatchSpecs with their channels as URLs, as `Resolver.spec` makes them.
        pins: MatchSpecs that must hold if the package is installed.
        virtual: virtual packages as ``name=version=build``.
        priority: strict, flexible (strict first; where that has no solution, disabled) or disabled.
        exclude_newer: a date ``YYYY-MM-DD``, included, or empty.
        cache: the directory where repodata is kept.
        places: the source line of each spec, by spec.
        base: the packages of an extension's base, which never change.
        site_file: the file with the pins, for messages.
        preferred: the packages locked now, kept unless a spec, a pin or an update changes them.
    """

    subject: str
    platform: str
    specs: tuple[str, ...]
    channels: tuple[Channel, ...]
    virtual: tuple[str, ...]
    cache: Path
    pins: tuple[str, ...] = ()
    priority: str = "strict"
    exclude_newer: str = ""
    where: Where | None = None
    places: tuple[tuple[str, Where], ...] = ()
    preferred: PreferredPackages = ALL_FREE
    base: tuple[CondaPackage, ...] = ()
    site_file: str = ""

    @property
    def held(self) -> tuple[str, ...]:
        """The packages of a base, which must not change, as MatchSpecs."""
        return tuple(f"{p.name} =={p.version} {p.build}" for p in self.base)


def solve_conda(request: CondaRequest) -> tuple[CondaPackage, ...]:
    """Solve and return the packages in order of name, each with a sha256 that was given or computed.

    Raises:
        StackyardError: a channel cannot be reached (named within ten seconds), or a package's bytes are not those of
            its channel's index.
        InputError: a spec is not a MatchSpec, or the specs cannot be satisfied; with the solver's reason and what to
            relax.
    """
    if not request.specs:
        return ()
    check([target_of(channel, request.where) for channel in request.channels])
    records = asyncio.run(_solve(request))
    packages = [hashed_package(record, request.channels) for record in records]
    return tuple(sorted(packages, key=lambda package: package.name))


def target_of(channel: Channel, where: Where | None = None) -> Target:
    """What must answer of a channel; `where`: the line that needs it, unless the channel has its own."""
    tries = tuple(f"{channel.url}/noarch/{name}" for name in _INDEXES)
    label = "the channel" if channel.name == channel.url else f"the channel {channel.name}"
    return Target(label, channel.url, tries, where=channel.where or where)


# --------------------------------------------------------------------------- solving


class _Solver:
    """One gateway and one set of parsed arguments, so that variations of a question can be solved."""

    def __init__(self, request: CondaRequest) -> None:
        self._request = request
        _forget_tokens(request.cache)
        places = [*(c.url for c in request.channels), *(s for s in request.specs if "://" in s and "::" not in s)]
        self._gateway = Gateway(cache_dir=request.cache, client=client(places), show_progress=False)
        self._virtual = [_virtual(text) for text in request.virtual]
        self._newest = end_of(request.exclude_newer).replace(tzinfo=None) if request.exclude_newer else None
        self._offered = OfferedPackages(())
        self.kept: Sequence[CondaPackage] = ()

    async def prefer(self) -> None:
        """Look up the locked packages; every later solve prefers those in `kept`."""
        self._offered = await offered(self._gateway, self._request, self._newest)

    async def run(
        self, specs: Sequence[str], pins: Sequence[str], priority: ChannelPriority | None = None
    ) -> list[RepoDataRecord]:
        """Solve. Raises SolverError or GatewayError as rattler does."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return await solve(
                [f"{secrets.seen(c.url)}/" for c in self._request.channels],
                [_match_spec(s, self._request) for s in (*specs, *self._bare_names(specs))],
                gateway=self._gateway,
                platforms=[Subdir(self._request.platform), Subdir("noarch")],
                locked_packages=self._offered.of(self.kept),
                pinned_packages=[repodata_record(package) for package in self._request.base],
                virtual_packages=self._virtual,
                channel_priority=priority or _PRIORITY[self._request.priority],
                exclude_newer=self._newest,
                constraints=[_match_spec(s, self._request) for s in (*self._request.held, *pins)],
            )

    def _bare_names(self, specs: Sequence[str]) -> list[str]:
        """The names of requirements without a channel, as additional specs without versions.

        rattler loads only records that match a requirement, so strict priority would not see that an earlier channel
        has the package in other versions. Asking for any version as well changes nothing else.
        """
        if self._request.priority != "strict":
            return []
        own = {conda_name(s) for s in specs if "::" in s or "://" in s}
        return sorted({conda_name(s) for s in specs} - own)

    async def works(self, specs: Sequence[str], pins: Sequence[str], priority: ChannelPriority | None = None) -> bool:
        """Whether there is a solution."""
        try:
            await self.run(specs, pins, priority)
        except SolverError:
            return False
        return True


@lru_cache(maxsize=8)
def _forget_tokens(cache: Path) -> None:
    """Remove files in which former versions kept channel URLs with a token or a login.

    Once in a process: this version writes no such file.
    """
    for note in (*cache.glob("*.info.json"), *cache.glob("*.shards-cache-v*")):
        with suppress(OSError):  # another process may have removed it, and another account may own it
            text = note.read_bytes().decode("latin-1")
            if secrets.shown(text) != text:
                for path in (note, note.with_name(note.name.replace(".info.json", ".json"))):
                    path.unlink(missing_ok=True)


async def _solve(request: CondaRequest) -> list[RepoDataRecord]:
    solver = _Solver(request)
    try:
        await solver.prefer()
        priority = None
        if request.priority == "flexible" and not await solver.works(request.specs, request.pins):
            priority = ChannelPriority.Disabled
        if request.preferred.renewed:
            return await _renewed(solver, request, priority)
        return await _least(solver, request, request.preferred.kept, priority)
    except SolverError as error:
        reason = _reason(str(error))
        blamed = await _conflicting_pins(solver, request)
        helpful = [] if blamed else await _helpful(solver, request)
        pinned = f" with the site's pin {pins.shown(blamed, request.site_file)}" if blamed else ""
        raise InputError(
            f"cannot solve the conda packages of {request.subject}{pinned}",
            where=_conflicting_place(request, reason, helpful),
            detail=reason,
            hint=PINNED if blamed else await _relax(solver, request, reason, helpful),
        ) from error
    except GatewayError as error:
        text = secrets.redacted(str(error))
        raise StackyardError(
            f"cannot read a channel of {request.subject}: {text.splitlines()[0] if text else 'no reason given'}",
            where=request.where,
            detail=text,
            hint="a channel is a directory with noarch/repodata.json and one repodata.json per platform",
        ) from error


async def _least(
    solver: _Solver,
    request: CondaRequest,
    packages: Sequence[CondaPackage],
    priority: ChannelPriority | None,
    pins: Sequence[str] = (),
) -> list[RepoDataRecord]:
    """The solution with the fewest changes: all kept versions, else only the kept Python, else neither.

    A preference alone does not keep a package if the solver's first choice for another package excludes it.
    """
    solver.kept = packages
    python = [f"python {'.'.join(p.version.split('.')[:2])}.*" for p in request.preferred.conda if p.name == "python"]
    exact = [f"{p.name} =={p.version}" for p in packages if fits(p, (*request.specs, *request.pins))]
    for constraints in (p for p in ([*python, *exact], python) if p):
        with suppress(SolverError):
            return await solver.run(request.specs, [*request.pins, *pins, *constraints], priority)
    return await solver.run(request.specs, [*request.pins, *pins], priority)


async def _renewed(solver: _Solver, request: CondaRequest, priority: ChannelPriority | None) -> list[RepoDataRecord]:
    """The solution with the newest versions of the packages to update, and with the other changes that these need.

    A first solve, with free choice for the dependencies of updated packages, finds their versions; a second one changes
    nothing else.
    """
    free = await _least(solver, request, request.preferred.independent, priority)
    renewed = request.preferred.renewed
    versions = [f"{r.name.normalized} =={r.version}" for r in free if r.name.normalized in renewed]
    return await _least(solver, request, request.preferred.kept, priority, versions)


def _conflicting_place(request: CondaRequest, reason: str, helpful: Sequence[str]) -> Where | None:
    """The line of the first requirement that makes it unsolvable; else of the first in the solver's message."""
    places = dict(request.places)
    named = [s for s in places if re.search(rf"(?<![\w.-]){re.escape(conda_name(s))}(?![\w-])", reason)]
    return next((places[s] for s in (*helpful, *named) if s in places), request.where)


async def _relax(solver: _Solver, request: CondaRequest, reason: str, helpful: Sequence[str]) -> str:
    """The requirement to relax for a solution, found by trying for a few seconds."""
    advice = _from_reason(request, reason)
    advice += await exported.advice(lambda specs: solver.run(specs, request.pins), request.specs)
    if request.priority == "strict" and await solver.works(request.specs, request.pins, ChannelPriority.Disabled):
        advice.append("solvable without strict channel priority: change the order of the channels, or name the channel")
    if helpful:
        either = " or ".join(f"`{_shown(spec)}`" for spec in helpful)
        it = "it" if len(helpful) == 1 else "one of them"
        advice.append(f"solvable without {either}: relax or remove {it}")
    return "; ".join(advice) or "relax more than one requirement; start with those in the solver's reason"


def _from_reason(request: CondaRequest, reason: str) -> list[str]:
    """Hints from the solver's message alone: names that no channel has, missing virtual packages."""
    advice = []
    missing = re.findall(r"No candidates were found for (\S+)", reason)
    missing += re.findall(r"[─ ]([a-zA-Z0-9][\w.-]*)[^\n─]*, for which no candidates were found", reason)
    if missing:
        searched = ", ".join(c.name for c in request.channels) or "none"
        names = ", ".join(dict.fromkeys(missing))
        advice.append(f"no channel has a matching {names} for {request.platform} (searched: {searched})")
    if re.search(r"__\w+[^,\n]*, for which no candidates", reason):
        advice.append(
            f"the nodes are assumed to have {', '.join(request.virtual)}; describe them in `nodes:` of site.yaml, or "
            f"exclude {request.platform} with `platforms:` of the stack (under a condition for single variants)"
        )
    return advice


async def _helpful(solver: _Solver, request: CondaRequest) -> list[str]:
    """The requirements whose removal, one at a time, makes the request solvable."""
    end = time.monotonic() + RELAX_BUDGET_S
    hints = []
    for spec in request.specs if len(request.specs) > 1 else ():
        if time.monotonic() > end:
            break
        if await solver.works([s for s in request.specs if s != spec], request.pins):
            hints.append(spec)
    return hints


async def _conflicting_pins(solver: _Solver, request: CondaRequest) -> Sequence[str]:
    """The site's pins whose removal, one at a time or all together, makes the request solvable; empty: none."""
    if not request.pins or not await solver.works(request.specs, ()):
        return ()
    alone = [p for p in request.pins if await solver.works(request.specs, [q for q in request.pins if q != p])]
    return alone or request.pins


def _shown(spec: str) -> str:
    return re.sub(r"^\S+/([^/\s]+)::", r"\1::", spec)


def _reason(text: str) -> str:
    return secrets.redacted(text).removeprefix("Cannot solve the request because of: ").strip()


def _match_spec(text: str, request: CondaRequest) -> MatchSpec:
    try:
        return MatchSpec(secrets.seen(text) if "://" in text else text)
    except InvalidMatchSpecError as error:
        raise InputError(
            f"{quoted(text)} is not a conda requirement: {error}",
            where=dict(request.places).get(text, request.where),
            hint="write it as name, version and build, e.g. `numpy >=1.26,<2`",
        ) from error


def _virtual(text: str) -> GenericVirtualPackage:
    name, version, build = text.split("=", 2)
    return GenericVirtualPackage(PackageName(name), Version(version), BuildString(build))


# --------------------------------------------------------------------------- records


def hashed_package(record: RepoDataRecord, channels: Sequence[Channel]) -> CondaPackage:
    """The package of a record from one of these channels, with its sha256, given or computed.

    Raises:
        StackyardError: its bytes are not those of its channel's index.
    """
    hint = "reindex the channel, or restore the package"
    return hashed(_package(record, channels), StackyardError, "its channel's", hint)


def _package(record: RepoDataRecord, channels: Sequence[Channel]) -> CondaPackage:
    data = json.loads(record.to_json())
    places = [c.url for c in channels if data["url"].startswith(f"{secrets.seen(c.url)}/")]
    noarch = data.get("noarch") or ""
    return CondaPackage(
        name=data["name"],
        version=data["version"],
        build=data["build"],
        build_number=data["build_number"],
        subdir=data["subdir"],
        channel=max(places, key=len, default=(data.get("channel") or "").rstrip("/")),
        url=secrets.written(data["url"]),
        sha256=data.get("sha256") or "",
        md5=data.get("md5") or "",
        size=data.get("size") or 0,
        noarch="generic" if noarch is True else noarch,
        timestamp_ms=data.get("timestamp") or 0,
        license=data.get("license") or "",
        depends=tuple(data.get("depends") or ()),
        constrains=tuple(data.get("constrains") or ()),
        purls=tuple(sorted(data.get("purls") or ())),
        python_site_packages_path=data.get("python_site_packages_path") or "",
    )
