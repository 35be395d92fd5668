"""Files and directories: by descriptors where others can write, hashes, scratch directories, full file systems."""
