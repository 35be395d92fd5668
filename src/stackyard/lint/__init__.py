"""Lint: errors and wasted resources in a batch script, line by line, each with a corrected line."""
