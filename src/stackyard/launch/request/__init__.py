"""What is requested: the intent of a job, and the job file that holds one."""
