"""Removal of what is no longer used: revisions, failed builds, cache entries."""
