"""Verbs that measure: studies, their reports, collectives, the import of many ranks."""
