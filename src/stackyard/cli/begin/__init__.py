"""The verb of the first minute."""
