"""URLs and the secrets in them: what may be shown, what may be kept, and what is put back where it is used."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urlsplit, urlunsplit

from stackyard.errors import InputError


def without_secrets(url: str) -> str:
    """A URL as it may be shown: user name and password replaced by ``***``."""
    parts = urlsplit(url)
    if "@" not in parts.netloc:
        return url
    return urlunsplit(parts._replace(netloc="***@" + parts.netloc.rsplit("@", 1)[1]))


def without_login(url: str) -> str:
    """A URL as it goes into a lock: without user name and password, which netrc has for those who may use it."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or "@" not in parts.netloc:
        return url
    return urlunsplit(parts._replace(netloc=parts.netloc.rsplit("@", 1)[1]))


def revealed(url: str, environ: Mapping[str, str]) -> str:
    """A locked URL as it is fetched: ``${NAME}`` replaced, which stands where a lock would hold a variable's value.

    Raises:
        InputError: it names a variable that is not set here.
    """

    def value(found: re.Match[str]) -> str:
        name = found.group(1)
        if name not in environ:
            raise InputError(f"{url} needs the variable {name}, which is not set", hint=f"export {name}=...")
        return environ[name]

    return re.sub(r"\$\{([A-Za-z_]\w*)\}", value, url)
