"""A variant and the site's policy become a lock: every package with version, build, URL and sha256 per platform."""

from stackyard import callable_room

callable_room(__name__)
