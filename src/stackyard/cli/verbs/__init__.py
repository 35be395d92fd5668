"""One module per verb, each with its `command`."""
