"""Package URLs (https://github.com/package-url/purl-spec) of conda and pip packages, in canonical form."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote, unquote, urlsplit

from stackyard.lock.lockfile.model import PipPackage
from stackyard.yard.revision.record import PackageRecord

ARCHIVES = (".conda", ".tar.bz2")


def purl_of(package: PackageRecord, locked: PipPackage | None = None) -> str:
    """The purl of a package; `locked`: how a pip package is locked, which tells its commit or that it is local."""
    if package.kind == "conda":
        return _conda(package)
    if locked is not None and locked.kind == "path":
        return generic(package.name, package.version)
    base = _made("pypi", package.name.lower().replace("_", "-"), package.version)
    if locked is not None and locked.kind == "vcs":
        below = f"#{quote(locked.subdirectory, safe='/')}" if locked.subdirectory else ""
        return f"{base}?vcs_url={_quoted(vcs_url(locked), '/')}{below}"
    file = unquote(package.url.partition("#")[0].rpartition("/")[2])
    return base + (f"?file_name={_quoted(file)}" if file.endswith((".whl", ".gz", ".zip", ".bz2")) else "")


def generic(name: str, version: str) -> str:
    """The purl of what no package manager knows."""
    return _made("generic", name, version)


def vcs_url(locked: PipPackage) -> str:
    """The address of a commit: ``git+https://host/repository@commit``."""
    return f"git+{locked.url.removeprefix('git+')}@{locked.commit}"


def _conda(package: PackageRecord) -> str:
    """The channel is named by the last part of its address."""
    directory, _, file = package.url.rpartition("/")
    ending = next((ending for ending in ARCHIVES if file.endswith(ending)), "")
    channel = urlsplit(package.source).path.strip("/").rpartition("/")[2]
    named = {"build": package.build, "channel": channel}
    if ending:
        named |= {"subdir": directory.rpartition("/")[2], "type": ending[1:]}
    return _made("conda", package.name.lower(), package.version, named)


def _made(kind: str, name: str, version: str, qualifiers: Mapping[str, str] | None = None) -> str:
    text = f"pkg:{kind}/{_quoted(name)}" + (f"@{_quoted(version)}" if version else "")
    words = [f"{key}={_quoted(value, '/')}" for key, value in sorted((qualifiers or {}).items()) if value]
    return f"{text}?{'&'.join(words)}" if words else text


def _quoted(text: str, more: str = "") -> str:
    """A part of a purl, percent-encoded; `more`: what stays as it is in a qualifier."""
    return quote(text, safe=f":{more}")
