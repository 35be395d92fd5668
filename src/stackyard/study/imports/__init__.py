"""The import storm: what one import asks of a file system, how long many take at once, and what more would take."""
