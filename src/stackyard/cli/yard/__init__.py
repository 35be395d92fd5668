"""The verbs of a yard over the years."""
