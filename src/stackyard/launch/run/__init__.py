"""One step: start the launcher, watch its agents, name the first failure, leave no process behind."""
