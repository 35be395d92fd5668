"""The request for a job: its intent, and the job file with one."""
