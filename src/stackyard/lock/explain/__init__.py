"""Explanations: why a package is there, what changed, why a solve or a source package failed."""
