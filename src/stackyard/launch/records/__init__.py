"""The records of a run: paths, record, status, outcome, tasks of an array; finding, comparing and following runs."""
