"""How a server is reached and checked: what `host.net.http` is told, without what it imports."""

from __future__ import annotations

from stackyard.core.late import dataclass

LOGIN_HINT = "put the login for this server into ~/.netrc, or write ${NAME}:${PASSWORD}@ into its URL and export both"
"""What to do about status 401 and 403."""


@dataclass(frozen=True)
class Trust:
    """How a server is reached and checked.

    Attributes:
        cafile: a CA bundle, or a directory of certificates, that replaces the system's; empty: the system's.
        client_cert: a PEM file with certificate and key.
        insecure: its certificate is not checked; that of another server, to which it redirects, is.
        proxy: instead of the environment's.
    """

    cafile: str = ""
    client_cert: str = ""
    insecure: bool = False
    proxy: str = ""


PLAIN = Trust()
