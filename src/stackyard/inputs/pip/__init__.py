"""pip's requirements format, and the settings that hold for pip packages."""
