"""Shared by all rooms: errors, findings, progress, secrets, quoting, and environment changes as data."""
