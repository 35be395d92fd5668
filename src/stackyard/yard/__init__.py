"""A yard on disk: paths, file formats, and crash-safe writing."""
