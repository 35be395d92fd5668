"""The conda half of a lock: channels, archives, virtual packages, the solve by rattler."""
