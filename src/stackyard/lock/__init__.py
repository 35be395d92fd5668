"""A variant and the site's policy become a lock: every package with version, build, URL and sha256 per platform."""
