"""environment.yml and conda's specs."""
