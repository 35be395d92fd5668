"""Looks at a machine and its scheduler, and writes a commented site.yaml that is right as it stands."""
