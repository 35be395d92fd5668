"""The settings for pip packages: pip's own configuration, then the site's policy, then the spec's options."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from stackyard.core import secrets
from stackyard.core.errors import InputError, Where
from stackyard.core.names import canonical
from stackyard.core.quoting import quoted
from stackyard.host.files.hashing import local_path
from stackyard.host.tools.pipconf import PYPI, PipSettings, read_config
from stackyard.inputs.models import PipOptions
from stackyard.inputs.pip.options import exclusive
from stackyard.inputs.reading.paths import with_home
from stackyard.inputs.sites.sitemodels import PipPolicy

_TRUE = {"1", "true", "yes", "y", "t", "on"}


def settings(
    policy: PipPolicy, options: PipOptions, environ: Mapping[str, str], places: Mapping[str, Where] | None = None
) -> tuple[PipSettings, tuple[str, ...]]:
    """The settings for one set of requirements, and notices about omitted parts.

    Args:
        policy: the site's policy; its index replaces pip.conf's, its lists are added.
        options: those of the requirements file or pip section; ``--index-url`` there replaces all indexes, as in pip.
        environ: the source of ``PIP_*``, home directories, and ``${NAME}`` in URLs. The settings have addresses
            (`core.secrets`): logins, tokens and the values of variables are not in them.
        places: the line of each index and find-links entry, for errors.

    Raises:
        InputError: pip's configuration cannot be read, or an option needs a variable that is not set.
    """
    config = read_config(environ) if policy.read_pip_conf else {}
    _refuse_unset(policy, options, environ, places or {})
    # precedence as in pip: options of the file, then the site, then pip.conf
    main = policy.index_url or config.get("index-url") or PYPI
    indexes = [main, *_list(config, "extra-index-url"), *policy.extra_index_urls]
    no_index = options.no_index or _true(config, "no-index")
    if options.index_url:
        indexes = [options.index_url]
    indexes += options.extra_index_urls
    # indexes that are directories of this machine may be absent; a notice names them
    usable, notices = _existing([] if no_index else [mirrored(url, policy) for url in indexes], environ)
    links, more = _existing([*_list(config, "find-links"), *policy.find_links, *options.find_links], environ)
    no_binary, only_binary = _formats(config, options)
    result = PipSettings(
        indexes=tuple(dict.fromkeys(url.rstrip("/") for url in usable)),
        find_links=tuple(dict.fromkeys(links)),
        constraints=tuple(_list(config, "constraint")),
        no_index=no_index or not usable,
        cert=config.get("cert", ""),
        client_cert=config.get("client-cert", ""),
        trusted_hosts=tuple(dict.fromkeys((*_list(config, "trusted-host"), *options.trusted_hosts))),
        proxy=config.get("proxy", ""),
        timeout_s=_seconds(config),
        pre=options.pre or _true(config, "pre") or ":all:" in options.all_releases,
        prefer_binary=options.prefer_binary or _true(config, "prefer-binary"),
        require_hashes=options.require_hashes or _true(config, "require-hashes"),
        no_binary=no_binary,
        only_binary=only_binary,
        all_releases=tuple(canonical(name) for name in options.all_releases if name != ":all:"),
        only_final=tuple(name if name == ":all:" else canonical(name) for name in options.only_final),
    )
    return result, (*notices, *more)


def mirrored(url: str, policy: PipPolicy) -> str:
    """The address of the site's mirror of an index: by the longest of its mirror rules that the URL begins with."""
    for original in sorted(policy.mirrors, key=len, reverse=True):
        start = original.rstrip("/")
        if url.rstrip("/") == start or url.startswith(f"{start}/"):
            return secrets.address(policy.mirrors[original].rstrip("/") + url[len(start) :], base=True)
    return secrets.address(url, base=True)


def _refuse_unset(
    policy: PipPolicy, options: PipOptions, environ: Mapping[str, str], places: Mapping[str, Where]
) -> None:
    """Raise InputError for an unset variable in an index or find-links URL; pip would use its name as a host."""
    urls = (policy.index_url, *policy.extra_index_urls, *policy.find_links)
    for text in (*urls, options.index_url, *options.extra_index_urls, *options.find_links):
        for problem in unset(text, text, environ, places.get(text)) if text else ():
            raise problem


def unset(url: str, text: str, environ: Mapping[str, str], where: Where | None) -> Iterator[InputError]:
    """The error for each unset variable in a URL. `text`: the text in the file."""
    for name in secrets.variables(url):
        if not environ.get(name):
            message = f"{quoted(text)} needs the variable {name}, which is not set"
            yield InputError(message, where=where, hint=f"export {name}=..., or write the value instead")


def compiling(base: PipSettings, names: tuple[str, ...]) -> PipSettings:
    """The settings with more packages that are always compiled."""
    targets = tuple(canonical(n) for n in names)
    return replace(
        base,
        no_binary=tuple(sorted({*base.no_binary, *targets})),
        only_binary=tuple(n for n in base.only_binary if n not in targets),
    )


def _existing(places: list[str], environ: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """The addresses without missing local directories, which pip skips too."""
    paths, notices = [], []
    for place in (secrets.address(text, environ, base=True) for text in places):
        opened = secrets.with_server(place, environ)
        expanded = str(with_home(opened)) if opened.startswith("~") else opened
        path = local_path(expanded) if "://" in expanded else Path(expanded).absolute()
        if path is None or path.exists():
            paths.append(place if "://" in expanded else str(path))
        else:
            notices.append(f"{place} of pip's configuration does not exist and is skipped, as by pip")
    return paths, notices


def _formats(config: Mapping[str, str], options: PipOptions) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """``no_binary`` and ``only_binary`` by pip's rules: in order, ``:none:`` forgets, ``:all:`` means every package."""
    no_binary: set[str] = set()
    only_binary: set[str] = set()
    for value in (*_list(config, "no-binary"), *options.no_binary):
        exclusive(value, no_binary, only_binary, keeps=True)
    for value in (*_list(config, "only-binary"), *options.only_binary):
        exclusive(value, only_binary, no_binary, keeps=True)
    return tuple(sorted(no_binary)), tuple(sorted(only_binary))


def _list(config: Mapping[str, str], key: str) -> list[str]:
    return config.get(key, "").split()


def _true(config: Mapping[str, str], key: str) -> bool:
    return config.get(key, "").strip().lower() in _TRUE


def _seconds(config: Mapping[str, str]) -> int:
    text = config.get("timeout", "")
    try:
        return int(float(text)) if text else 0
    except ValueError as error:
        raise InputError(
            f"invalid timeout in pip's configuration: {quoted(text)} is not a number of seconds"
        ) from error
