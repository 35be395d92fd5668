"""The verbs of jobs: launch, submit, explain, lint, runs."""
