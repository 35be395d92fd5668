"""Checks whether the files of a yard are unchanged, and repairs them. No program of a stack is run."""
