"""Commands of an image that others made, as a revision: the image beside stubs, and how its container is made."""
