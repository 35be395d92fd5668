"""One step: starts the launcher, watches its agents, names the first failure, leaves no process behind."""
