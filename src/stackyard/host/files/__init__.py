"""Files and directories: safe access by descriptors, hashes, scratch directories, full file systems."""
