"""rattler's access to servers: with the logins of its own storage and of netrc, but without secrets in URLs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from stackyard.core import secrets
from stackyard.host.files import home
from stackyard.host.net import gateway

if TYPE_CHECKING:
    from rattler import Client

RETRIES = 3


def client(places: Iterable[str]) -> Client:
    """A client for channels and packages, given by their addresses.

    rattler writes its URLs into caches, records and messages. So it gets `secrets.seen`, and if that is not sufficient
    for a download, a mirror in this process.
    """
    from rattler import Client
    from rattler.networking import (
        AuthenticationMiddleware,
        GCSMiddleware,
        MirrorMiddleware,
        OciMiddleware,
        RetryMiddleware,
        S3Middleware,
    )

    protected = {place.rstrip("/") for place in places if secrets.is_protected(place)}
    mirrors = {f"{secrets.seen(place)}/": [f"{gateway.mirror(place)}/"] for place in protected}
    own = [MirrorMiddleware(mirrors)] if mirrors else []
    retry, login = RetryMiddleware(RETRIES), AuthenticationMiddleware()
    with home.named():  # where rattler looks for logins
        return Client([retry, *own, login, OciMiddleware(), GCSMiddleware(), S3Middleware()])
