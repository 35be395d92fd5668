"""Values of variables stay out of locks: a URL that contains one is recorded with ``${NAME}`` in its place.

Channels, indexes and requirements may use variables, which often contain a token. A lock has their names; the values
are inserted where something is downloaded (`host.secrets.revealed`), from the environment of the build.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from urllib.parse import urlsplit

from stackyard.lock.model import LockedVariant
from stackyard.spec.environment import channel_variables
from stackyard.spec.models import Environment

_SHORTEST = 6  # a shorter value is not a secret, and would match unrelated text
_NAME = re.compile(r"\$\{([A-Za-z_]\w*)\}")


def variables_of(environment: Environment) -> tuple[str, ...]:
    """The variables in channels, indexes, find-links entries and requirements."""
    options = environment.pip_options
    texts = [*options.extra_index_urls, *options.find_links, *([options.index_url] if options.index_url else [])]
    texts += [text for r in (*environment.pip, *environment.constraints) for text in (r.url, r.index)]
    names = [name for channel in environment.channels for name in channel_variables(channel)]
    return tuple(dict.fromkeys([*names, *(name for text in texts for name in _NAME.findall(text))]))


def redact(locked: LockedVariant, names: Iterable[str], environ: Mapping[str, str]) -> LockedVariant:
    """A locked variant with the names of variables in its URLs instead of their values."""
    values = {n: environ[n] for n in names if len(environ.get(n, "")) >= _SHORTEST}
    if not values:
        return locked

    def hide(url: str) -> str:
        if urlsplit(url).scheme in ("", "file"):
            return url
        for name, value in sorted(values.items(), key=lambda item: -len(item[1])):
            url = url.replace(value, f"${{{name}}}")
        return url

    return replace(
        locked,
        conda=tuple(replace(p, url=hide(p.url), channel=hide(p.channel)) for p in locked.conda),
        pip=tuple(replace(p, url=hide(p.url), index=hide(p.index)) for p in locked.pip),
    )
