"""The verbs that build and publish: `deploy` and its related verbs."""
