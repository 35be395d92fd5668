"""Crash-safe changes of a yard."""
