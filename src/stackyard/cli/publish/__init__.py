"""The verbs that build and publish: `deploy` and what comes before and after it."""
