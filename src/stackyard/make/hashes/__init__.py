"""The hashes of a build: of everything that influences it, and of the files in a prefix."""
