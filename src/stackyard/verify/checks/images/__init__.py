"""The checks of images: of wrapped images, and of launchers."""
