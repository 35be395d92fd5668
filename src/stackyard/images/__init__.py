"""Images: a built prefix or a base as one file, and what an image gets from the host when it runs."""
