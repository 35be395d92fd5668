"""Connection and certificate settings for `host.net.http`, separate because of its imports."""

from __future__ import annotations

from stackyard.core.late import dataclass

LOGIN_HINT = "put the login for this server into ~/.netrc, or write ${NAME}:${PASSWORD}@ into its URL and export both"
"""What to do about status 401 and 403."""


@dataclass(frozen=True)
class Trust:
    """Connection and certificate settings for a server.

    Attributes:
        cafile: a CA bundle, or a directory of certificates, that replaces the system's; empty: the system's.
        client_cert: a PEM file with certificate and key.
        insecure: do not check its certificate; those of other servers, to which it redirects, are checked.
        proxy: replaces the environment's.
    """

    cafile: str = ""
    client_cert: str = ""
    insecure: bool = False
    proxy: str = ""


PLAIN = Trust()
