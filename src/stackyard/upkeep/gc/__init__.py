"""Removal of unused files: revisions, failed builds, cache entries."""
