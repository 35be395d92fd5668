"""Other programs and processes: the one door to subprocesses, views of the files for them, running processes."""
