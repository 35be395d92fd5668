"""Commands of a third-party image as a revision: the image, its stubs, and the settings of its container."""
