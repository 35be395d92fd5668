"""Preferences of a conda solve: the records of locked packages that the channels still offer.

rattler takes a preferred record even if no channel has it, and without asking for the channel priority. So only records
are preferred that a solve without preferences could choose too.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rattler import Gateway, MatchSpec, RepoDataRecord, Subdir

from stackyard.core import secrets
from stackyard.core.names import conda_name

if TYPE_CHECKING:
    from stackyard.lock.conda.solve import CondaRequest
    from stackyard.lock.lockfile.model import CondaPackage


class OfferedPackages:
    """The locked packages of a request that its channels offer now, as records.

    A mirror offers the same packages as the channel that it replaces: the channel's URL does not matter.
    """

    def __init__(self, records: Iterable[RepoDataRecord]) -> None:
        self._records: dict[tuple[str, str, str, str], RepoDataRecord] = {}
        for record in records:
            key = (record.name.normalized, str(record.version), str(record.build), record.subdir)
            self._records.setdefault(key, record)

    def of(self, packages: Iterable[CondaPackage]) -> list[RepoDataRecord]:
        """The records of these packages; packages that are not offered are left out."""
        records = (self._records.get((p.name, p.version, p.build, p.subdir)) for p in packages)
        return [record for record in records if record is not None]


async def offered(gateway: Gateway, request: CondaRequest, newest: datetime.datetime | None) -> OfferedPackages:
    """Ask the channels for the locked packages; those that policy excludes by date or by priority are left out.

    Raises:
        GatewayError: a channel cannot be read.
    """
    packages = request.preferred.conda
    if not packages:
        return OfferedPackages(())
    records = await _query(gateway, request, [f"{p.name} =={p.version} {p.build}" for p in packages])
    usable = [record for record in records if newest is None or _is_old(record, newest)]
    return OfferedPackages(await _of_first_channels(gateway, request, usable))


async def _of_first_channels(
    gateway: Gateway, request: CondaRequest, records: Sequence[RepoDataRecord]
) -> list[RepoDataRecord]:
    """For strict and flexible priority: the records without packages that an earlier channel has in any version."""
    urls = [secrets.seen(channel.url) for channel in request.channels]
    if request.priority == "disabled" or len(urls) == 1:
        return list(records)
    own = {conda_name(spec) for spec in request.specs if "::" in spec or "://" in spec}
    later = {r.name.normalized for r in records if _place(r, urls) > 0} - own
    first: dict[str, int] = {}
    for record in await _query(gateway, request, sorted(later)) if later else ():
        name = record.name.normalized
        first[name] = min(first.get(name, len(urls)), _place(record, urls))
    return [r for r in records if _place(r, urls) <= first.get(r.name.normalized, len(urls))]


async def _query(gateway: Gateway, request: CondaRequest, specs: Sequence[str]) -> list[RepoDataRecord]:
    platforms = [Subdir(request.platform), Subdir("noarch")]
    sources = [f"{secrets.seen(channel.url)}/" for channel in request.channels]
    result = await gateway.query(sources, platforms, [MatchSpec(spec) for spec in specs], recursive=False)
    return [record for source in result for record in source]


def _place(record: RepoDataRecord, urls: Sequence[str]) -> int:
    """The position of a record's channel in the search list."""
    return next((n for n, url in enumerate(urls) if record.url.startswith(f"{url}/")), len(urls))


def _is_old(record: RepoDataRecord, newest: datetime.datetime) -> bool:
    """Whether a record is older than a time (UTC, without a zone); one without a time is excluded, as in a solve."""
    stamp = record.timestamp
    return stamp is not None and stamp.astimezone(datetime.timezone.utc).replace(tzinfo=None) <= newest
