"""Reads YAML with the place of every value, within bounds, into models."""
