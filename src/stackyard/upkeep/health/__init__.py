"""Finding and repairing changed files."""
