"""Transfer of revisions between yards: pull, adopt, move."""
