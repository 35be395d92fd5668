"""Paths that several packages install: whose file is taken, so that one lock makes one tree."""
