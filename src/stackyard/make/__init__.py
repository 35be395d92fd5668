"""Builds an immutable prefix from a lock, with its captured activation and a record."""
