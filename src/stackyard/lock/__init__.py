"""Locks a variant under the site's policy: every package with version, build, URL and sha256 per platform."""

from stackyard import callable_room

callable_room(__name__)
