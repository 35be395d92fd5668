"""pip's requirements format, and the settings for pip packages."""
