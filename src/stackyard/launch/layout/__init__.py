"""Placement of ranks: nodes, cores and GPUs. Pure: nothing here starts a program."""
