"""The verb of diagnosis."""
