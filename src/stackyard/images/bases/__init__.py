"""Images of others that SIF and OCI images are built on: where they come from, what they hold, how they are kept."""
