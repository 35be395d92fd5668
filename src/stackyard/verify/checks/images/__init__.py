"""The checks of images: of a wrapped one, and of the launcher of one."""
