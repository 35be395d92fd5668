"""A revision on a base as one SIF file."""
