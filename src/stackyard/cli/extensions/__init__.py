"""The verbs for your own packages on top of a published revision."""
