"""Images: a built prefix or a base as one file, and the host's libraries that an image uses at run time."""
