"""The verbs that show and use what is published."""
