"""One revision on disk: its directory, its record, its contents, its signatures."""
