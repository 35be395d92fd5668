"""site.yaml, bindings.yaml, and the site and yard of a command."""
