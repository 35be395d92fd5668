"""The verbs that show and use published revisions."""
