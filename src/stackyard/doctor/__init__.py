"""Diagnosis: what went wrong in a log or a run, and what is wrong with this shell, machine and yard."""
