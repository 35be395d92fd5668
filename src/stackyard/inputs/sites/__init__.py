"""site.yaml, bindings.yaml, and which site and yard a command works with."""
