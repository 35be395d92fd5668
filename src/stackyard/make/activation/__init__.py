"""What activating a prefix does to the environment, captured once."""
