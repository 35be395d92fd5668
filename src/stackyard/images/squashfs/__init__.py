"""A revision as one SquashFS file: packed, mounted, and run through a launcher."""
