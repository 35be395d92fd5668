"""What is published, and changes to it without a build: names, rollback, retirement, sharing."""
