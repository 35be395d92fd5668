"""The caches of a yard and the notes on their entries."""
