"""OCI images: layouts on disk, a revision as layers on a base, and transfers to and from registries."""
