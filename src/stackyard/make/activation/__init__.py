"""The effect of a prefix's activation on the environment, captured once."""
