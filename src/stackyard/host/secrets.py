"""URLs and the secrets in them: for display, for a lock, and for use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urlsplit, urlunsplit

from stackyard.errors import InputError


def without_secrets(url: str) -> str:
    """A URL for display: user name and password replaced by ``***``."""
    parts = urlsplit(url)
    if "@" not in parts.netloc:
        return url
    return urlunsplit(parts._replace(netloc="***@" + parts.netloc.rsplit("@", 1)[1]))


def without_login(url: str) -> str:
    """A URL for a lock: without user name and password, which belong into netrc."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or "@" not in parts.netloc:
        return url
    return urlunsplit(parts._replace(netloc=parts.netloc.rsplit("@", 1)[1]))


def revealed(url: str, environ: Mapping[str, str]) -> str:
    """A locked URL for use: each ``${NAME}`` replaced by the variable's value, which locks do not contain.

    Raises:
        InputError: it contains a variable that is not set.
    """

    def value(found: re.Match[str]) -> str:
        name = found.group(1)
        if name not in environ:
            raise InputError(f"{url} needs the variable {name}, which is not set", hint=f"export {name}=...")
        return environ[name]

    return re.sub(r"\$\{([A-Za-z_]\w*)\}", value, url)
