"""`lint --fix`: the job file that is equivalent to a batch script."""
