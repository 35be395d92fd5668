"""A lock becomes an immutable prefix with its captured activation and a record."""
