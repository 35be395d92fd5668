"""The verbs for the administration of a yard."""
