"""What is there already below a lock: the base of an extension, an adopted prefix, an interpreter."""
