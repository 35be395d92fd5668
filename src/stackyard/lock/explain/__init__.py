"""Explanations: why a package is installed, what changed, why a solve or a source package failed."""
