"""Placement of ranks: nodes, cores and GPUs. Pure functions; no program is started here."""
