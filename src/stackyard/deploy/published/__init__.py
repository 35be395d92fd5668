"""Published revisions and their changes without a build: names, rollback, retirement, sharing."""
