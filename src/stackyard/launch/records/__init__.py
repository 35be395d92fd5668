"""What is kept of a run: paths, record, status, outcome, tasks of an array; found again, compared, followed."""
