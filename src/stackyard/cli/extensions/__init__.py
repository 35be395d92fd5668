"""The verbs of packages of one's own on a published revision."""
