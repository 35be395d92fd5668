"""What is kept of a run, found again and followed: its folder, record, status, outcome, and the tasks of an array."""
