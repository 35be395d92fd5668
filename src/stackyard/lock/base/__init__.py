"""The packages that exist below a lock: the base of an extension, an adopted prefix, an interpreter."""
