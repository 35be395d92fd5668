"""How rattler fetches: with the logins of its own storage and of netrc, and without those that addresses lack."""

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

    rattler writes the URLs that it is given into its caches, its records and its messages. So it gets `secrets.seen`,
    and a mirror of it in this process where that is not enough to fetch.
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
