"""Paths on disk, file formats, and writing such that a kill at any point leaves no partial state."""
