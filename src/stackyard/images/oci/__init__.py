"""OCI images: layouts on disk, a revision as layers on a base, and what goes to and comes from registries."""
