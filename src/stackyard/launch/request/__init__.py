"""What is asked for: the intent of a job, the job file that holds one, and what is found wrong with a request."""
