"""Resolves channel names to URLs by the site's policy.

Pure, except for the environment variables in channel URLs. URLs are addresses (`core.secrets`): without logins, tokens
and the values of variables.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import field
from fnmatch import fnmatchcase
from pathlib import Path

from stackyard.core import secrets
from stackyard.core.errors import InputError, Where
from stackyard.core.late import dataclass
from stackyard.core.quoting import cut
from stackyard.host.machine.platforms import SUBDIRS
from stackyard.inputs.conda.environment import channels_for
from stackyard.inputs.conda.selectors import holds
from stackyard.inputs.models import CondaRequirement, Environment
from stackyard.inputs.reading.paths import absolute
from stackyard.inputs.sites.sitemodels import ChannelPolicy

ANACONDA = "https://conda.anaconda.org"
_DEFAULTS_HOME = "https://repo.anaconda.com/pkgs"
_SUBDIR = re.compile(rf"/({'|'.join(SUBDIRS)})/?$")


@dataclass(frozen=True)
class Channel:
    """One channel: its name as written, its address without a trailing slash, and the line that names it."""

    name: str
    url: str
    where: Where | None = field(default=None, compare=False)

    @property
    def shown(self) -> str:
        """The text that a lock records: the address, or the name as written if it has a variable and no secret."""
        return self.name if "$" in self.name and secrets.shown(self.name, base=True) == self.name else self.url


class Resolver:
    """Turns channel names into URLs by a site's policy, and rejects channels that the site does not allow.

    Args:
        policy: the site's channel policy.
        where: the file that names the channels, for errors; relative channel paths start at its directory.
        environ: the values of ``$VAR`` in channels.
    """

    def __init__(self, policy: ChannelPolicy, where: Where, environ: Mapping[str, str] = os.environ) -> None:
        self._policy = policy
        self._where = where
        self._environ = environ

    def search_list(
        self, environment: Environment, platform: str = "", axes: Mapping[str, str] | None = None
    ) -> tuple[Channel, ...]:
        """The channels that are searched, in order of priority, each URL once.

        The site's `prepend` comes first, then the file's own (or the site's default where it names none), then the
        channels that single requirements name. ``nodefaults`` takes ``defaults`` out of the site's default.

        Args:
            platform: leaves out channels whose selector is false on it; empty: nothing is left out.
            axes: the variant's axes, for selectors.

        Raises:
            InputError: a channel that the site denies, or a variable that is not set; with the channel's own line.
        """
        axes = axes or {}
        own = channels_for(environment, platform, axes) if platform else environment.channels
        if not environment.channels:
            own = tuple(n for n in self._policy.default if not (environment.nodefaults and n == "defaults"))
        named = [
            (r.channel, r.place)
            for r in environment.conda
            if r.channel and (not platform or holds(r.selector, platform, axes))
        ]
        channels = [(name, environment.channel_places.get(name)) for name in (*self._policy.prepend, *own)]
        return _unique(c for name, place in (*channels, *named) for c in self.resolve(name, place))

    def resolve(self, name: str, place: Where | None = None) -> tuple[Channel, ...]:
        """The channels of one name; ``defaults`` is several.

        Args:
            place: the line that names it, for errors; else the resolver's own.

        Raises:
            InputError: the site denies it, or it has a variable that is not set.
        """
        written = name.strip()
        if written in ("nodefaults", ""):
            return ()
        where = place if place and place.file else None
        parts: tuple[str, ...] = (written,)
        if written == "defaults" and "defaults" not in self._policy.mirrors:
            parts = self._policy.defaults
        try:
            return tuple(Channel(part, self._url(part, written), where) for part in parts)
        except InputError as error:
            raise InputError(error.message, where=where or error.where, hint=error.hint) from error

    def spec(self, requirement: CondaRequirement) -> str:
        """A requirement's MatchSpec with the address of its channel."""
        if requirement.url or not requirement.channel:
            return secrets.address(requirement.url, self._environ, conda=True) or requirement.spec
        rest = requirement.spec.split("::", 1)[-1]
        channel = self.resolve(requirement.channel, requirement.place)[0].url
        subdir = f"/{requirement.subdir}" if requirement.subdir else ""
        return f"{channel}{subdir}::{rest}"

    def _url(self, name: str, written: str) -> str:
        expanded = self._expand(name)
        mirrors = {self._plain(key): value for key, value in self._policy.mirrors.items()}
        original = self._address(name) if "://" in expanded else self._original(expanded)
        opened = secrets.with_server(original, self._environ)
        self._permit(written, {written, name, expanded, original, opened})
        for key in (name, expanded, original, opened):
            if self._plain(key) in mirrors:
                return self._address(mirrors[self._plain(key)])
        for key in sorted(mirrors, key=len, reverse=True):
            if "://" in key and opened.startswith(f"{key}/"):
                return self._address(mirrors[key]) + opened[len(key) :]
        return original

    def _address(self, url: str) -> str:
        """The address of a URL in which variables may be written as ``$NAME``. Raises InputError if one is not set."""
        self._expand(url)
        braced = re.sub(r"\$(?:\{(\w+)\}|(\w+))", lambda match: f"${{{match[1] or match[2]}}}", url)
        return self._plain(secrets.address(self._plain(braced), self._environ, conda=True, base=True))

    def _original(self, name: str) -> str:
        """The URL of a channel that is not one itself, before any mirror."""
        if name.startswith(("/", "~", "./", "../")):
            return absolute(name, Path(self._where.file).absolute().parent).as_uri()
        if self._plain(self._policy.alias) == ANACONDA and name in ("main", "r", "free", "msys2"):
            return f"{_DEFAULTS_HOME}/{name}"
        if self._plain(self._policy.alias) == ANACONDA and name.startswith("pkgs/"):
            return f"{_DEFAULTS_HOME}/{name.removeprefix('pkgs/')}"
        return f"{self._address(self._policy.alias)}/{name.strip('/')}"

    def _plain(self, url: str) -> str:
        return _SUBDIR.sub("", url.rstrip("/")) if "://" in url or "$" in url else url

    def _expand(self, text: str) -> str:
        def value(match: re.Match[str]) -> str:
            name = match.group(1) or match.group(2)
            if name not in self._environ:
                raise InputError(
                    f"the channel {cut(text)} needs the variable {name}, which is not set",
                    where=self._named_in,
                    hint=f"export {name}=..., or write the URL without it",
                )
            return self._environ[name]

        return re.sub(r"\$(?:\{(\w+)\}|(\w+))", value, text)

    def _permit(self, written: str, names: Iterable[str]) -> None:
        names = set(names)
        denied = next((g for g in self._policy.denied if _any(names, g)), None)
        if denied is not None:
            why = f"denied by the site (channels.denied: {denied})"
        elif self._policy.allowed and not any(_any(names, glob) for glob in self._policy.allowed):
            why = "not allowed by the site"
        else:
            return
        raise InputError(f"the channel {written} is {why}", where=self._named_in, hint=_allowed_hint(self._policy))

    @property
    def _named_in(self) -> Where | None:
        return self._where if self._where.file else None


def _unique(channels: Iterable[Channel]) -> tuple[Channel, ...]:
    unique: dict[str, Channel] = {}
    for channel in channels:
        unique.setdefault(channel.url, channel)
    return tuple(unique.values())


def _any(names: Iterable[str], glob: str) -> bool:
    return any(fnmatchcase(name, glob) or fnmatchcase(name, glob.rstrip("/") + "/*") for name in names)


def _allowed_hint(policy: ChannelPolicy) -> str:
    if policy.allowed:
        return f"use one of {', '.join(policy.allowed)}"
    return f"remove it from `channels:`, or use {', '.join(policy.default)}"
